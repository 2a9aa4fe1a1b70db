// Package natsusers reads the file of the users of the embedded NATS server.
package natsusers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/penstock-mq/penstock/internal/yamlfile"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/queue/roles"
)

// entry is a user as the file has it.
type entry struct {
	Name     string     `json:"name"`
	Role     roles.Role `json:"role"`
	Policies []string   `json:"policies"`
	NKey     string     `json:"nkey"`
	Password string     `json:"password"`
	Publish  []string   `json:"publish"`
}

// Load reads a file. Its error joins everything that is wrong, each with its line, and quotes no
// password.
func Load(name string) ([]embedded.User, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the users: %w", err)
	}
	defer file.Close()
	return Parse(file, name)
}

// Parse reads the text of a file with a name.
func Parse(file io.Reader, name string) ([]embedded.User, error) {
	doc, err := yamlfile.Read(io.LimitReader(file, 16<<20))
	if p, ok := errors.AsType[yamlfile.Problem](err); ok {
		return nil, yamlfile.Join(name, []yamlfile.Problem{p})
	}
	if err != nil {
		return nil, err
	}
	problems := doc.Problems
	bad := func(place string, err error) {
		for line := range strings.Lines(err.Error()) {
			problems = append(problems, yamlfile.Problem{Place: place, Line: doc.Line(place),
				Reason: strings.TrimSuffix(line, "\n")})
		}
	}
	var users []embedded.User
	names := map[string]bool{}
	list, ok := doc.Tree["users"].([]any)
	if !ok || len(list) == 0 || len(doc.Tree) > 1 {
		problems = append(problems, yamlfile.Problem{Line: 1,
			Reason: "want a list users, with at least one, and nothing else"})
	}
	for i, item := range list {
		place := fmt.Sprintf("users[%d]", i)
		e, err := read(item)
		if err != nil {
			bad(place, err)
			continue
		}
		u := e.user()
		if err := u.Check(); err != nil {
			bad(place, err)
		}
		if names[u.Name] {
			bad(place, fmt.Errorf("user %q is listed already", u.Name))
		}
		names[u.Name] = true
		users = append(users, u)
	}
	return users, yamlfile.Join(name, problems)
}

func (e entry) user() embedded.User {
	return embedded.User{Name: e.Name, Role: e.Role, Policies: e.Policies, NKey: e.NKey,
		Password: e.Password, Publish: e.Publish}
}

// read reads a user strictly, by way of JSON.
func read(item any) (e entry, err error) {
	text, err := json.Marshal(item)
	if err != nil {
		return e, err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&e); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return e, fmt.Errorf("%s: want another type, not a %s", wrong.Field, wrong.Value)
		}
		return e, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return e, nil
}
