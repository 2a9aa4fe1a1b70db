package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission/limiter"
	"github.com/penstock-mq/penstock/admission/limiter/inredis"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/base/clienttls"
	"github.com/penstock-mq/penstock/internal/base/notice"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/server/daemon"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/internal/server/guard"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/internal/server/telemetry"
	"github.com/penstock-mq/penstock/internal/server/tracing"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// serve also runs a target at echoAt, if set.
func serve(ctx context.Context, process *daemon.Process, drain bool, echoAt string) (err error) {
	metrics := telemetry.NewRegistry()
	process.Files.Observe = metrics.FileRead()
	server, err := openInside(process.Config.NATS, process.Files)
	if err != nil {
		return err
	}
	o := options(process, server.options())
	o.AdmitOnly = !drain
	o.HTTP.Metrics = metrics.Handler(process.Log)
	o.Sink = metrics.Admission()
	traces, err := tracing.Open(ctx, "admitter", process.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, traces.Close()) }()
	o.Submitting = traces.Submitting()
	if drain {
		o.Sink = queue.Sinks{o.Sink, metrics.Drain()}
		o.Attempt = traces.Attempt()
	}
	limits := limiter.New(limiter.Options{Logger: process.Log})
	if c := process.Config.State; c.Store == "redis" {
		rdb, err := openRedis(c.Redis)
		if err != nil {
			return err
		}
		defer rdb.Close()
		limits = sharedLimits(process, rdb, metrics)
		o.Limits = limits
	}
	beside := &beside{Process: process}
	defer beside.close()
	if err := beside.gateways(ctx, limits, metrics); err != nil {
		return err
	}
	var p *penstock.Penstock
	if len(process.Config.Outbound) > 0 {
		err := beside.outlets(ctx, outbound.Options{Called: metrics.Outbound(),
			Trace: traces.Calling(), Transport: outbound.NewTransport(), Logger: process.Log,
			Acquire: func(ctx context.Context, r penstock.Call) (*penstock.Permit, error) {
				return p.Acquire(ctx, r)
			}})
		if err != nil {
			return err
		}
		beside.routes = &routes{proxies: beside.proxies, observe: metrics.OutboundFaults(),
			policies: func() inforce.Entries { return p.Policies() },
			notices:  notice.New(process.Log)}
		o.Parts = beside.routes.parts
	}
	if p, err = penstock.Open(ctx, o); errors.Is(err, embedded.ErrListen) {
		return fmt.Errorf("nats.embedded.listen: %w", err)
	} else if err != nil {
		return err
	}
	defer p.Close()
	server.apply = p.SetUsers
	if beside.routes != nil {
		beside.parts = append(beside.parts, beside.routes.run(p.Ready()))
	}
	metrics.QueueJobs(p.Depths)
	metrics.NATS(p.Connected)
	metrics.Audit(p.Audit)

	work := []func(context.Context) error{
		p.Run, server.users.Follow(process.Log), server.tls.Follow(process.Log),
		process.Reloads(func(ctx context.Context, next config.Config) error {
			if err := p.Reload(ctx, reloadable(o, next)); err != nil { // refused: nothing changes
				return err
			}
			return errors.Join(beside.reload(next), server.users.Reload(), server.tls.Reload())
		}),
		func(ctx context.Context) error {
			return announce(ctx, process, p, beside.ready, echoAt != "")
		},
	}
	if echoAt != "" {
		target, err := net.Listen("tcp", echoAt)
		if err != nil {
			return fmt.Errorf("listen for the echo: %w", err)
		}
		beside.parts = append(beside.parts, lifecycle.HTTP(target, echo(process.Stdout),
			lifecycle.HTTPOptions{Logger: process.Log}))
	}
	return lifecycle.Run(ctx, lifecycle.InTurn(0, work, beside.parts))
}

func sharedLimits(process *daemon.Process, rdb redis.UniversalClient,
	metrics *telemetry.Registry) *limiter.Factory {

	redis.SetLogger(redisLog{process.Log})
	c := process.Config.State.Redis
	return limiter.New(limiter.Options{Sink: metrics.Store(), Logger: process.Log,
		Shared: inredis.New(rdb, inredis.Options{Prefix: c.Prefix, Timeout: c.Timeout})})
}

func options(process *daemon.Process, server embedded.Options) penstock.Options {
	c := process.Config
	o := penstock.Options{
		URL:              c.NATS.URL,
		Server:           server,
		Credentials:      penstock.Credentials(c.NATS.Credentials),
		StartWithoutNATS: true,
		Prefix:           c.NATS.Prefix,
		Domain:           c.NATS.Domain,
		Replicas:         c.NATS.Replicas,
		DrainPolicies:    c.Drain.Policies,
		Lease:            c.Drain.Lease,
		Memory:           int64(c.Drain.Memory),
		AllowTargets:     c.Targets.Allow,
		HTTP: penstock.HTTP{
			Listen:         cmp.Or(c.HTTP.Listen, config.AdmitterListen),
			Tokens:         c.HTTP.Tokens,
			TLS:            penstock.TLS(c.HTTP.TLS),
			Insecure:       c.HTTP.Insecure,
			LameDuck:       c.HTTP.LameDuck,
			Hosts:          c.HTTP.Hosts,
			TrustedProxies: c.HTTP.TrustedProxies,
			MaxConnections: c.HTTP.MaxConnections,
			MaxPerClient:   c.HTTP.MaxPerClient,
		},
		ServeNATS: true,
		Grace:     max(c.Grace, time.Nanosecond), // at least 1 ns, because zero selects the default
		Cache:     c.State.Cache,
		Audit:     c.Audit,
		Files:     process.Files,
		Logger:    process.Log,
	}
	if process.HasFile {
		o = reloadable(o, c)
	}
	return o
}

func reloadable(o penstock.Options, c config.Config) penstock.Options {
	o.Policies, o.Set, o.DrainPolicies = c.Policies, c.Set, c.Drain.Policies
	o.Prune, o.AllowShrink = c.Prune, c.AllowShrink
	o.Schedules = c.Schedules
	if o.Policies == nil {
		o.Policies = []policy.Policy{} // not nil: the file has no policies
	}
	return o
}

func announce(ctx context.Context, process *daemon.Process, p *penstock.Penstock, more string,
	toTry bool) error {
	select {
	case <-p.Ready():
		http, nats := p.HTTPAddr().String(), cmp.Or(p.NATSURL(), "in-process")
		fmt.Fprintf(process.Stdout, "ready http=%s nats=%s%s\n", http, nats, more)
		process.Log.Info("ready", "http", http, "nats", nats)
		if toTry {
			fmt.Fprint(process.Stdout, banner(http, nats, p.Policies()))
		}
	case <-ctx.Done():
		return nil
	}
	<-ctx.Done()
	return nil
}

// inside is the embedded NATS server and the contents of its files.
type inside struct {
	config.Embedded
	users *follow.Content[[]embedded.User] // nil: no access control
	tls   *guard.Keeper
	apply func([]embedded.User) error // once the server runs
}

// An external server has no files here.
func openInside(c config.NATS, files *follow.Status) (i *inside, err error) {
	i = &inside{Embedded: c.Embedded, tls: &guard.Keeper{}}
	if c.URL != "" {
		i.Users, i.TLS = "", config.ServerTLS{}
	}
	if i.Users != "" {
		i.users, err = follow.Open("nats users", []string{i.Users}, i.loadUsers, files)
	}
	if i.TLS.Cert != "" && err == nil {
		i.tls, err = guard.OpenTLS("nats certificates", guard.Files(i.TLS), files)
	}
	return i, err
}

func (i *inside) loadUsers() (*[]embedded.User, error) {
	users, err := daemon.LoadUsers(i.Users)
	if err == nil && i.apply != nil {
		err = i.apply(users)
	}
	return &users, err
}

func (i *inside) options() embedded.Options {
	o := embedded.Options{Dir: i.Dir, Listen: i.Listen, Sync: i.Sync.Every,
		SyncAlways: i.Sync.Always, MaxStore: int64(i.MaxStore)}
	if i.users != nil {
		o.Users = *i.users.Current()
	}
	if i.tls.Content != nil {
		o.TLS = i.tls.Demanding()
	}
	return o
}

// The breaker logs outages.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, fmt.Sprintf(format, args...))
}

const dialTimeout = 5 * time.Second

// openRedis does not connect. Certificates are read for each connection.
func openRedis(c config.Redis) (redis.UniversalClient, error) {
	if _, err := secure(c.TLS); err != nil {
		return nil, fmt.Errorf("state.redis.tls: %w", err)
	}
	var dial func(ctx context.Context, network, address string) (net.Conn, error)
	if c.TLS.Enabled {
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			secured, err := secure(c.TLS)
			if err != nil {
				return nil, fmt.Errorf("state.redis.tls: %w", err)
			}
			return (&tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: secured}).
				DialContext(ctx, network, address)
		}
	}
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:                 c.Addrs,
		ClientName:            "penstock-admitter",
		IsClusterMode:         c.Cluster,
		MasterName:            c.Master,
		DB:                    c.DB,
		Username:              c.Username,
		Password:              c.Password,
		SentinelUsername:      c.SentinelUsername,
		SentinelPassword:      c.SentinelPassword,
		Dialer:                dial,
		ContextTimeoutEnabled: true,
		DialerRetries:         1, // the next decision retries
	}), nil
}

func secure(c config.TLS) (*tls.Config, error) {
	if !c.Enabled {
		return nil, nil
	}
	made, err := clienttls.Files{CA: c.CA, Cert: c.Cert, Key: c.Key}.Config()
	if err == nil {
		made.ServerName = c.ServerName
	}
	return made, err
}
