package daemon

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/penstock-mq/penstock/internal/base/strict"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// LoadUsers reads the file of the users of the embedded NATS server. Its error lists all problems
// by line, and quotes no password.
func LoadUsers(name string) ([]embedded.User, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the users: %w", err)
	}
	defer file.Close()
	return ParseUsers(file)
}

func ParseUsers(file io.Reader) ([]embedded.User, error) {
	f, err := strict.Read(file)
	if err != nil {
		return nil, err
	}
	var document struct {
		Users []embedded.User `json:"users"`
	}
	f.Decode(&document)
	if len(document.Users) == 0 {
		f.Add("users", "want a list with at least one")
	}
	names := map[string]bool{}
	for i, u := range document.Users {
		place := fmt.Sprintf("users[%d]", i)
		if err := u.Check(); err != nil && f.Sound(place) {
			for line := range strings.Lines(err.Error()) {
				f.Add(place, "%s", strings.TrimSuffix(line, "\n"))
			}
		}
		if names[u.Name] {
			f.Add(place, "user %q is listed already", u.Name)
		}
		names[u.Name] = true
	}
	return document.Users, f.Err()
}
