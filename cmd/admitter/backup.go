package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/queue/backup"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/server/daemon"
	"github.com/penstock-mq/penstock/queue/embedded"
)

const notInIt = `not included: leases and locks, which expire; histories, counts of minutes, and Idempotency-Keys of completed jobs;
limit counters; configuration, tokens, certificates and other files
`

func makeBackup(args []string, stdout, stderr io.Writer) int {
	return overInstallation("backup", "Writes the installation (jobs, dead letters, policies, "+
		"limits of keys, attempts) to FILE,\nrunning or not.", args, stdout, stderr,
		func(ctx context.Context, b *jet.Broker, file string) error {
			c, err := writeWhole(ctx, b, file)
			if err == nil {
				tell(stdout, "wrote "+file, c)
				fmt.Fprint(stdout, notInIt)
			}
			return err
		})
}

func restore(args []string, stdout, stderr io.Writer) int {
	return overInstallation("restore", "Restores a backup into an empty installation, "+
		"completely or not at all.", args, stdout, stderr,
		func(ctx context.Context, b *jet.Broker, file string) error {
			from, err := os.Open(file)
			if err != nil {
				return err
			}
			defer from.Close()
			c, err := backup.Restore(ctx, b, from)
			if err == nil {
				tell(stdout, "restored "+file+" of "+c.Made.Format("2006-01-02 15:04:05 MST"), c)
			}
			return err
		})
}

func tell(to io.Writer, what string, c backup.Contents) {
	fmt.Fprintln(to, what+":")
	for _, s := range c.Streams {
		fmt.Fprintf(to, "  %s: %d messages\n", s.Name, s.Messages)
	}
}

func writeWhole(ctx context.Context, b *jet.Broker, file string) (backup.Contents, error) {
	// Renaming would replace a device or a pipe.
	if info, err := os.Stat(file); file == "" || err == nil && !info.Mode().IsRegular() {
		return backup.Contents{}, fmt.Errorf("%q: want the name of a regular file", file)
	}
	dir, name := filepath.Split(file)
	part, err := os.CreateTemp(cmp.Or(dir, "."), name+".*.partial") // readable only by its owner
	if err != nil {
		return backup.Contents{}, err
	}
	defer func() { _ = os.Remove(part.Name()) }()
	defer part.Close()
	c, err := backup.Write(ctx, b, part)
	if err == nil {
		err = part.Sync()
	}
	if err == nil {
		err = part.Close()
	}
	if err == nil {
		err = os.Rename(part.Name(), file)
	}
	return c, err
}

func overInstallation(name, does string, args []string, stdout, stderr io.Writer,
	do func(ctx context.Context, b *jet.Broker, file string) error) int {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	config.Flags(flags)
	return subcommand(name+" FILE [flags]", does, flags, args, stdout, stderr,
		func(file string) (int, error) {
			c, err := config.LoadFile(flags)
			if err != nil {
				return daemon.Invalid, err
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			nc, leave, err := reach(c, name == "backup")
			if err != nil {
				return daemon.Failed, err
			}
			defer leave()
			b, err := jet.NewBroker(nc,
				jet.Options{Prefix: c.NATS.Prefix, Domain: c.NATS.Domain,
					Replicas: c.NATS.Replicas})
			if err == nil {
				err = do(ctx, b, file)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
			return daemon.Failed, err
		})
}

// reach starts an embedded server on its directory, or with running set connects to the admitter
// that has it open.
func reach(c config.Config, running bool) (*nats.Conn, func(), error) {
	url, e := c.NATS.URL, c.NATS.Embedded
	if url == "" {
		if _, err := os.Stat(e.Dir); err != nil && running {
			return nil, nil, fmt.Errorf("no embedded server to back up: %w", err)
		}
		server, err := embedded.Start(embedded.Options{Dir: e.Dir, MaxStore: int64(e.MaxStore),
			Logger: slog.New(slog.DiscardHandler)})
		switch {
		case err == nil:
			nc, err := server.Connect()
			if err != nil {
				server.Shutdown()
				return nil, nil, err
			}
			return nc, func() { nc.Close(); server.Shutdown() }, nil
		case !errors.Is(err, embedded.ErrInUse):
			return nil, nil, err
		case !running:
			return nil, nil, fmt.Errorf("%w: stop the running admitter first", err)
		}
		url = "nats://" + e.Listen
		if _, port, err := net.SplitHostPort(e.Listen); err != nil || port == "0" {
			return nil, nil, errors.New("an admitter is running without nats.embedded.listen, " +
				"so give its address as --nats-url")
		}
	}
	login, err := c.NATS.Credentials.Options()
	if err != nil {
		return nil, nil, err
	}
	nc, err := nats.Connect(url, append(login, nats.Name("penstock backup"))...)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to NATS: %w; a running admitter with users or TLS "+
			"needs --nats-url, the credentials of a user with the role admitter, and nats.tls", err)
	}
	return nc, nc.Close, nil
}
