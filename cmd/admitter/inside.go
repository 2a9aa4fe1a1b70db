package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/natsusers"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// inside is the embedded NATS server and the contents of its files.
type inside struct {
	config.Embedded
	users []embedded.User // nil: no access control
	tls   *guard.Keeper
	files *follow.Status
}

const (
	userFiles        = "nats users"
	certificateFiles = "nats certificates"
)

// An external server has no files here.
func openInside(c config.NATS, files *follow.Status) (i inside, err error) {
	i.Embedded, i.files, i.tls = c.Embedded, files, &guard.Keeper{}
	if c.URL != "" {
		i.Users, i.TLS = "", config.ServerTLS{}
	}
	if i.Users != "" {
		if i.users, err = natsusers.Load(i.Users); err != nil {
			return i, err
		}
	}
	if i.TLS.Cert != "" {
		i.tls, err = guard.OpenTLS(certificateFiles, guard.Files(i.TLS), files)
	}
	return i, err
}

func (i inside) options() embedded.Options {
	o := embedded.Options{Dir: i.Dir, Listen: i.Listen, Sync: i.Sync.Every,
		SyncAlways: i.Sync.Always, MaxStore: int64(i.MaxStore), Users: i.users}
	if i.tls.Content != nil {
		o.TLS = i.tls.Demanding()
	}
	return o
}

func (i inside) reloadUsers(p *penstock.Penstock) error {
	if i.users == nil {
		return nil
	}
	users, err := natsusers.Load(i.Users)
	if err == nil {
		err = p.SetUsers(users)
	}
	return i.files.Note(userFiles, err)
}

func (i inside) reload(p *penstock.Penstock) error {
	return errors.Join(i.reloadUsers(p), i.tls.Reload())
}

func (i inside) follow(p *penstock.Penstock, log *slog.Logger) []func(context.Context) error {
	return []func(context.Context) error{
		follow.Files(userFiles, []string{i.Users},
			func() error { return i.reloadUsers(p) }, log),
		i.tls.Follow(log),
	}
}
