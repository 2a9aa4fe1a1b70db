// Package daemon is the common frame of Penstock's commands.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	_ "time/tzdata" // minimal images have no zones

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/base/buildinfo"
	"github.com/penstock-mq/penstock/internal/base/container"
	"github.com/penstock-mq/penstock/internal/base/files"
	"github.com/penstock-mq/penstock/internal/base/nearest"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/guard"
	// Files of clients may name a provider.
	_ "github.com/penstock-mq/penstock/internal/server/openid"
	"github.com/penstock-mq/penstock/internal/server/telemetry"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

// Exit statuses.
const (
	Done    = 0
	Failed  = 1
	Invalid = 2 // wrong arguments or configuration
)

// Report prints the lines of an error and returns the status, which is 0 without an error.
func Report(to io.Writer, program string, status int, err error) int {
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return Done
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(to, program+": "+strings.TrimSuffix(line, "\n"))
	}
	return status
}

// Parse is flags.Parse, with --help on out: text, then the flags.
func Parse(flags *pflag.FlagSet, args []string, out io.Writer, text string) error {
	var failed error
	flags.Usage = func() { _, failed = fmt.Fprintf(out, "%s\n\n%s", text, flags.FlagUsages()) }
	if err := flags.Parse(args); failed == nil {
		return err
	}
	return failed
}

// A repeated signal within it counts as the first: programs such as timeout signal a process and
// then its group.
const sameSignal = 100 * time.Millisecond

type Command struct {
	Name  string
	Does  string
	Flags func(*pflag.FlagSet)
	// More are usages of subcommands that the caller runs, such as "backup FILE".
	More   []string
	Listen string
	Check  func(config.Config) error
	// Live are settings that the command itself applies after a reload.
	Live  []string
	Serve func(context.Context, *Process) error
}

type Process struct {
	Config config.Config
	// read from a file, including policies
	HasFile bool
	Stdout  io.Writer
	Log     *slog.Logger
	Files   *follow.Status

	command Command
	flags   *pflag.FlagSet
	level   *slog.LevelVar
	last    config.Config
	file    *follow.Watch
	failed  bool // the last reload
	reloads <-chan os.Signal
}

// Main ends the process. SIGTERM and SIGINT end Serve's context, a second one the process. SIGHUP
// reloads the configuration.
func (c Command) Main() {
	ctx, stop := context.WithCancel(context.Background())
	ends, reloads := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, os.Interrupt)
	signal.Notify(reloads, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE) // a log without its reader must not prevent a handover
	var running atomic.Pointer[Process]
	go func() {
		first := <-ends
		running.Load().stopping(first)
		stop()
		told := time.Now()
		second := <-ends
		for time.Since(told) < sameSignal {
			second = <-ends
		}
		running.Load().cutOff(second)
		os.Exit(Failed)
	}()
	collectLess()
	limitMemory()
	status, err := c.run(ctx, os.Args[1:], os.Stdout, os.Stderr, reloads, &running)
	stop()
	os.Exit(Report(os.Stderr, c.Name, status, err))
}

// stopping logs the signal; p is nil during the start.
func (p *Process) stopping(by os.Signal) {
	if p != nil {
		p.Log.Info("stopping", "signal", by.String(), "grace", p.Config.Grace,
			"until",
			time.Now().Add(max(p.Config.Grace, p.Config.HTTP.LameDuck)).UTC().Format(time.RFC3339))
	}
}

func (p *Process) cutOff(by os.Signal) {
	if p != nil {
		p.Log.Warn("stopped by a second signal: running jobs may run twice", "signal", by.String())
	}
}

// run is Main without signals and exit. The status is of the error.
func (c Command) run(ctx context.Context, args []string, stdout, stderr io.Writer,
	reloads <-chan os.Signal, running *atomic.Pointer[Process]) (status int, err error) {

	flags := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	c.Flags(flags)
	profile := flags.String("pprof", "",
		"serve Go profiles at this local `host:port`, such as 127.0.0.1:6060")
	version := flags.Bool("version", false, "print the version")
	if err := Parse(flags, args, stdout, c.help()); err != nil {
		return statusOf(err, Invalid), err
	}
	if *version {
		_, err := fmt.Fprintln(stdout, c.Name, buildinfo.Version())
		return Failed, err
	}
	if err := c.arguments(flags); err != nil {
		return Invalid, err
	}

	file := follow.Watching(config.FileName(flags))
	cfg, err := c.load(flags)
	if err != nil {
		return statusOf(err, Invalid), err
	}
	switch flags.Arg(0) {
	case wordHealthcheck:
		return Failed, healthcheck(ctx, cfg.HTTP, c.Listen, stdout)
	case wordValidate:
		for _, warning := range slices.Concat(cfg.Warnings, cfg.Doubts) {
			fmt.Fprintln(stderr, c.Name+": warning: "+warning)
		}
		_, err := fmt.Fprintf(stdout, "the configuration is valid (policies: %d, schedules: %d)\n",
			len(cfg.Policies), len(cfg.Schedules))
		return Failed, err
	}
	level := new(slog.LevelVar)
	logger, err := telemetry.NewLogger(stderr, level, cfg.Log.Format)
	if err == nil {
		err = setLevel(level, cfg)
	}
	if err != nil {
		return Invalid, err
	}
	slog.SetDefault(logger)
	for _, warning := range cfg.Warnings {
		logger.Warn(warning)
	}
	if n, most := cfg.HTTP.MaxConnections, files.Limit(); n > most &&
		cmp.Or(cfg.HTTP.Listen, c.Listen) != "" {
		logger.Warn("http.max_connections is more than this process may open files: "+
			"lower it, or raise ulimit -n (LimitNOFILE of a service)", "http.max_connections", n,
			"limit", most)
	}
	if most := container.Memory(); most < math.MaxInt64 {
		logger.Info("memory limits", "process", policy.Size(most), "gomemlimit",
			policy.Size(debug.SetMemoryLimit(-1)), "drain.memory", cmp.Or(cfg.Drain.Memory,
				policy.Size(workers.DefaultMemory())))
	}
	p := &Process{
		Config:  cfg,
		HasFile: config.FileName(flags) != "",
		Stdout:  stdout,
		Log:     logger,
		Files:   new(follow.Status),
		command: c,
		flags:   flags,
		level:   level,
		last:    cfg,
		file:    file,
		reloads: reloads,
	}
	stop, err := profiles(*profile)
	if err != nil {
		return statusOf(err, Invalid), err
	}
	defer stop()
	running.Store(p)
	switch err := c.Serve(ctx, p); {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		logger.Info("stopped during the start", "error", err)
		return Done, nil
	case err != nil:
		return statusOf(err, Failed), err
	}
	logger.Info("stopped")
	return Done, nil
}

const (
	wordValidate    = "validate"
	wordHealthcheck = "healthcheck"
)

func (c Command) usages() []string {
	return append([]string{wordValidate + " [FILE] [flags]", wordHealthcheck + " [flags]"},
		c.More...)
}

func (c Command) help() string {
	text := "Usage: " + c.Name + " [flags]\n"
	for _, usage := range c.usages() {
		text += "       " + c.Name + " " + usage + "\n"
	}
	return text + "\n" + c.Does + "\n" +
		`"validate" checks a configuration without running it, "healthcheck" checks that ` +
		"the process at http.listen is ready."
}

// arguments accepts the arguments healthcheck, or validate with an optional file.
func (c Command) arguments(flags *pflag.FlagSet) error {
	switch {
	case flags.NArg() == 1 && flags.Arg(0) == wordHealthcheck:
	case flags.NArg() > 0 && flags.Arg(0) != wordValidate:
		words := c.usages()
		for i, usage := range words {
			words[i], _, _ = strings.Cut(usage, " ")
		}
		return fmt.Errorf("%q: want no arguments, or %s%s", strings.Join(flags.Args(), " "),
			strings.Join(words, ", "), nearest.Hint(flags.Arg(0), words))
	case flags.NArg() > 2 || flags.NArg() == 2 && flags.Changed("config"):
		return fmt.Errorf("%q: want one file", strings.Join(flags.Args(), " "))
	case flags.NArg() == 2:
		return flags.Set("config", flags.Arg(1))
	}
	return nil
}

func (c Command) load(flags *pflag.FlagSet) (config.Config, error) {
	cfg, err := config.LoadFile(flags)
	if err == nil && c.Check != nil {
		err = c.Check(cfg)
	}
	if err == nil && cfg.HTTP.Tokens != "" {
		_, err = access.Load(cfg.HTTP.Tokens)
		err = named("http.tokens", err)
	}
	if err == nil && cfg.HTTP.TLS.Cert != "" {
		_, err = guard.Files(cfg.HTTP.TLS).Load()
		err = named("http.tls", err)
	}
	server := cfg.NATS.Embedded
	if err == nil && server.Users != "" && cfg.NATS.URL == "" {
		_, err = LoadUsers(server.Users)
		err = named("nats.embedded.users", err)
	}
	if err == nil && server.TLS.Cert != "" && cfg.NATS.URL == "" {
		_, err = guard.Files(server.TLS).Load()
		err = named("nats.embedded.tls", err)
	}
	return cfg, err
}

// named adds the setting of a file that cannot be read. Mistakes in it have its name and line.
func named(setting string, err error) error {
	if _, unreadable := errors.AsType[*fs.PathError](err); unreadable {
		return fmt.Errorf("%s: %w", setting, err)
	}
	return err
}

// others returns the files that load reads beside the configuration.
func others(c config.Config) []string {
	names := append(guard.Files(c.HTTP.TLS).Names(), c.HTTP.Tokens, c.NATS.Embedded.Users)
	names = append(names, guard.Files(c.NATS.Embedded.TLS).Names()...)
	return append(names, c.Envoy.Files...)
}

// Errors about policies that only their stored state reveals are of the configuration; files that
// cannot be opened and ports that are taken are not.
func statusOf(err error, otherwise int) int {
	_, unreadable := errors.AsType[*fs.PathError](err)
	_, taken := errors.AsType[*net.OpError](err)
	_, invalid := errors.AsType[*policy.InvalidError](err)
	_, fixed := errors.AsType[*jet.ImmutableError](err)
	switch {
	case invalid || fixed:
		return Invalid
	case unreadable || taken:
		return Failed
	}
	return otherwise
}

func setLevel(level *slog.LevelVar, c config.Config) error {
	return level.UnmarshalText([]byte(c.Log.Level))
}

const configuration = "configuration"

// Reloads returns a part that passes the configuration to apply on SIGHUP and when its file
// changes. An invalid one, also if apply rejects it, is ignored. It applies the log level itself,
// and warns about settings that need a restart.
func (p *Process) Reloads(
	apply func(context.Context, config.Config) error) func(context.Context) error {
	// A connection keeps its nkey when it reconnects.
	nkey := follow.Watching(p.Config.NATS.Credentials.NKeyFile)
	beside := follow.Watching(others(p.Config)...)
	return func(ctx context.Context) error {
		_ = p.Files.Note(configuration, nil)
		looks := time.NewTicker(follow.Every)
		defer looks.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-p.reloads:
				p.file.Seen()
				p.reload(ctx, apply)
			case <-looks.C:
				if mended := beside.Changed() && p.failed; p.file.Changed() || mended {
					p.reload(ctx, apply)
				}
				if nkey.Changed() {
					p.Log.Warn("nats.nkey_file changed, which requires a restart: connections "+
						"keep the previous nkey", "file", p.Config.NATS.Credentials.NKeyFile)
				}
			}
		}
	}
}

func (p *Process) reload(ctx context.Context, apply func(context.Context, config.Config) error) {
	if !p.HasFile {
		p.Log.Warn("SIGHUP: no configuration file to reload")
		return
	}
	name := config.FileName(p.flags)
	next, err := p.command.load(p.flags)
	if err == nil {
		err = apply(ctx, next)
	}
	if err == nil {
		err = setLevel(p.level, next)
	}
	if ctx.Err() != nil {
		return
	}
	p.failed = err != nil
	if p.Files.Note(configuration, err) != nil {
		for line := range strings.Lines(err.Error()) {
			p.Log.Error("invalid configuration not reloaded: the previous one stays in force",
				"file", name,
				"problem", strings.TrimSuffix(line, "\n"))
		}
		return
	}
	restart := slices.DeleteFunc(config.Changed(p.Config, next), func(key string) bool {
		return key == "log.level" || slices.Contains(p.command.Live, key)
	})
	if len(restart) > 0 {
		p.Log.Warn("changed settings require a restart: the previous ones stay in force",
			"settings", strings.Join(restart, ", "))
	}
	changed := append(config.Changed(p.last, next), config.ChangedLists(p.last, next)...)
	p.Log.Info("configuration reloaded", "file", name, "policies", len(next.Policies),
		"changed", cmp.Or(strings.Join(changed, ", "), "nothing"))
	p.last = next
}
