package natsconn

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
)

// Credentials authenticate a process to the NATS server, and the server to it. At most one of the
// first three lines may be set; the zero value uses only the URL. Files are read for each
// connection.
type Credentials struct {
	User         string `json:"user"`                   // with a password
	Password     string `json:"password" secret:"true"` // better in a file or a variable
	PasswordFile string `json:"password_file"`          // read for each connection
	Token        string `json:"token" secret:"true"`    // better in a file or a variable
	TokenFile    string `json:"token_file"`             // read for each connection
	NKeyFile     string `json:"nkey_file"`              // a seed
	CredsFile    string `json:"creds_file"`             // a JWT and a seed

	// TLS: trusted authorities and a client certificate
	CA   string `json:"-"`
	Cert string `json:"-"`
	Key  string `json:"-"`
}

// Check returns an error, without reading files or quoting secrets.
func (c Credentials) Check() error {
	ways := 0
	for _, given := range []bool{c.User != "" || c.Password != "" || c.PasswordFile != "",
		c.Token != "" || c.TokenFile != "", c.NKeyFile != "", c.CredsFile != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("want only one of user and password, token, nkey_file and creds_file")
	case c.User == "" && (c.Password != "" || c.PasswordFile != ""):
		return errors.New("a password requires a user")
	case c.Password != "" && c.PasswordFile != "":
		return errors.New("password cannot be combined with password_file")
	case c.Token != "" && c.TokenFile != "":
		return errors.New("token cannot be combined with token_file")
	case (c.Cert == "") != (c.Key == ""):
		return errors.New("tls requires both cert and key, or neither")
	}
	return nil
}

// Options reads the files: an unreadable one is an error now, and later an error of connecting.
func (c Credentials) Options() ([]nats.Option, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	var options []nats.Option
	for _, name := range []string{c.PasswordFile, c.TokenFile, c.CredsFile} {
		if _, err := secret(name, ""); err != nil {
			return nil, err
		}
	}
	switch {
	case c.User != "":
		options = append(options, nats.UserInfoHandler(func() (string, string) {
			password, _ := secret(c.PasswordFile, c.Password) // without it the server refuses
			return c.User, password
		}))
	case c.Token != "" || c.TokenFile != "":
		options = append(options, nats.TokenHandler(func() string {
			token, _ := secret(c.TokenFile, c.Token)
			return token
		}))
	case c.NKeyFile != "":
		option, err := nats.NkeyOptionFromSeed(c.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.NKeyFile, err)
		}
		options = append(options, option)
	case c.CredsFile != "":
		options = append(options, nats.UserCredentials(c.CredsFile))
	}
	if c.CA != "" {
		options = append(options, nats.RootCAs(c.CA))
	}
	if c.Cert != "" {
		options = append(options, nats.ClientCert(c.Cert, c.Key))
	}
	return options, nil
}

func secret(file, given string) (string, error) {
	if file == "" {
		return given, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
