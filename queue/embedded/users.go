package embedded

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/penstock-mq/penstock/internal/queue/roles"
)

// Role is what a NATS user may do: producer, checker, caller, reader, worker, operator, drainer or
// admitter (docs/operate.md).
type Role = roles.Role

// User is a NATS user of the embedded server, with the rights of a role.
type User struct {
	// Name is the login name, and names the inbox: _INBOX.NAME.
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Policies are names, or "*"; empty for drainers and admitters.
	Policies []string `json:"policies"`
	// Either a bcrypt hash, or the public key of a seed.
	Password string `json:"password" secret:"true"`
	NKey     string `json:"nkey" secret:"true"`
	// Publish has more subjects, such as a drainer's NATS targets.
	Publish []string `json:"publish"`
}

// Check returns what is wrong with the user, or nil.
func (u User) Check() error {
	err := errors.Join(roles.CheckUser(u.Name), roles.Check(u.Role, u.Policies))
	switch {
	case (u.Password == "") == (u.NKey == ""):
		err = errors.Join(err, errors.New("want either nkey or password"))
	case u.NKey != "" && !nkeys.IsValidPublicUserKey(u.NKey):
		err = errors.Join(err, errors.New("nkey: want the public key of a user: 56 letters and "+
			"digits, U first; the seed, which begins with SU, is the client's"))
	case u.Password != "" && !strings.HasPrefix(u.Password, "$2"):
		err = errors.Join(err, errors.New("password: want a bcrypt hash, which begins with $2"))
	}
	for _, subject := range u.Publish {
		if subject == "" || strings.ContainsAny(subject, " \t\r\n") ||
			strings.HasPrefix(subject, "$") {
			err = errors.Join(err, fmt.Errorf("publish: %.80q is no subject of a target", subject))
		}
	}
	return err
}

func (u User) permissions(prefix string) *server.Permissions {
	p := roles.Of(u.Role, prefix, u.Name, u.Policies)
	publish := &server.SubjectPermission{Allow: append(p.Publish, u.Publish...)}
	if len(publish.Allow) == 0 { // otherwise all would be allowed
		publish.Deny = []string{">"}
	}
	return &server.Permissions{
		Publish:   publish,
		Subscribe: &server.SubjectPermission{Allow: p.Subscribe},
	}
}

// self is this process's user; others' names have no dot.
const self = "penstock.self"

// users adds this process's user, with a random password.
func (s *Server) users(o Options, into *server.Options) error {
	if len(o.Users) == 0 {
		return nil
	}
	if s.password == "" {
		s.password = rand.Text()
	}
	into.Users = []*server.User{{Username: self, Password: s.password}}
	names := map[string]bool{}
	for _, u := range o.Users {
		if err := u.Check(); err != nil {
			return err
		}
		if names[u.Name] || u.NKey != "" && names[u.NKey] {
			return fmt.Errorf("user %q, or its key, is listed twice", u.Name)
		}
		names[u.Name], names[u.NKey] = true, true
		if u.NKey != "" {
			into.Nkeys = append(into.Nkeys,
				&server.NkeyUser{Nkey: u.NKey, Permissions: u.permissions(o.prefix())})
		} else {
			into.Users = append(into.Users, &server.User{Username: u.Name, Password: u.Password,
				Permissions: u.permissions(o.prefix())})
		}
	}
	return nil
}

func (s *Server) login() []nats.Option {
	if s.password == "" {
		return nil
	}
	return []nats.Option{nats.UserInfo(self, s.password)}
}

// SetUsers replaces the users, if any. It disconnects clients with fewer permissions.
func (s *Server) SetUsers(users []User) error {
	if s.password == "" || len(users) == 0 {
		return errors.New("a server is open or has users for as long as it runs")
	}
	o, next := s.options, *s.given
	o.Users, next.Users, next.Nkeys = users, nil, nil
	if err := s.users(o, &next); err != nil {
		return err
	}
	if err := s.server.ReloadOptions(next.Clone()); err != nil {
		return fmt.Errorf("change the users of the NATS server: %w", err)
	}
	return nil
}
