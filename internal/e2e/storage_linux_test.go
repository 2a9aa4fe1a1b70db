package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// onDisk is the environment variable with the small disk that was mounted for a test.
const onDisk = "PENSTOCK_E2E_DISK"

// onSmallDisk runs a test on a private disk of 48 MiB: it runs the test again in a new mount
// namespace, for ordinary users within a user namespace.
func onSmallDisk(t *testing.T, test func(t *testing.T, disk string)) {
	if disk := os.Getenv(onDisk); disk != "" {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			t.Fatalf("keep mounts from other namespaces: %v", err)
		}
		if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=48m"); err != nil {
			t.Fatalf("mount a small disk: %v", err)
		}
		test(t, disk)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(user bool) error {
		cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.timeout=3m")
		if testing.Verbose() {
			cmd.Args = append(cmd.Args, "-test.v")
		}
		cmd.Env = append(os.Environ(), onDisk+"="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS,
			Pdeathsig: syscall.SIGKILL}
		if user {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0,
				HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0,
				HostID: os.Getgid(), Size: 1}}
		}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd.Run()
	}
	err = run(os.Getuid() != 0)
	if errors.Is(err, syscall.EPERM) && os.Getuid() == 0 {
		err = run(true)
	}
	if err != nil {
		t.Fatalf("on a disk of its own: %v (without root it needs user namespaces)", err)
	}
}

// patientGrace exceeds the time that a process may take to end at once.
const patientGrace = time.Minute

// installation is an admitter with a drainer on a small disk, with a policy "full" without workers
// and a policy "other" with a target.
type installation struct {
	t    *testing.T
	disk string
	http string
	log  *waittest.Log

	target string
	mu     sync.Mutex
	came   map[string]int
}

func newInstallation(t *testing.T, disk string, grace time.Duration) *installation {
	i := &installation{t: t, disk: disk, http: proctest.FreeAddress(t), log: new(waittest.Log),
		came: map[string]int{}}
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		name, _, _ := strings.Cut(string(body), " ")
		i.mu.Lock()
		defer i.mu.Unlock()
		i.came[name]++
	}))
	t.Cleanup(target.Close)
	i.target = target.URL
	config := fmt.Sprintf(`
http: {listen: %q}
nats: {embedded: {dir: %q, listen: ""}}
drain: {lease: 5s}
grace: %s
policies:
  - {name: full, algorithm: leaking_bucket, outflow: 1000/s, capacity: 100000, partitions: 2}
  - {name: other, algorithm: leaking_bucket, outflow: 1000/s, capacity: 1000, partitions: 2, target: {http: {url: %q}}}
  - {name: slow, algorithm: leaking_bucket, outflow: 40/s, capacity: 1000, partitions: 2, target: {http: {url: %q}}}
targets: {allow: [127.0.0.1/32]}
`, i.http, filepath.Join(disk, "nats"), grace, i.target, i.target)
	if err := os.WriteFile(filepath.Join(disk, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

func (i *installation) start() *process {
	i.t.Helper()
	cmd := exec.Command(proctest.Program("admitter"), "--drain", "--config",
		filepath.Join(i.disk, "config.yaml"))
	cmd.Stderr = io.MultiWriter(os.Stderr, i.log)
	return spawn(i.t, "admitter", cmd)
}

func (i *installation) ask(method, path, body string) (status int, header http.Header,
	text string) {
	i.t.Helper()
	request, err := http.NewRequest(method, "http://"+i.http+path, strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return response.StatusCode, response.Header, string(read)
}

func (i *installation) submit(policy, name string) (status int, header http.Header, text string) {
	i.t.Helper()
	return i.ask("POST", "/v1/jobs/"+policy+"/a", name+" "+strings.Repeat("x", 64<<10))
}

func (i *installation) until(what string, done func() bool) {
	i.t.Helper()
	(&cluster{t: i.t}).until(what, done)
}

func (i *installation) arrived(names []string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, name := range names {
		if i.came[name] == 0 {
			return false
		}
	}
	return true
}

func (i *installation) others(prefix string) {
	i.t.Helper()
	var names []string
	for n := range 10 {
		name := fmt.Sprintf("%s-%d", prefix, n)
		if status, _, text := i.submit("other", name); status != http.StatusAccepted {
			i.t.Fatalf("another policy's job: %d %s", status, text)
		}
		names = append(names, name)
	}
	i.until("the other policy's jobs ran", func() bool { return i.arrived(names) })
}

// drain gives the full policy a target, and waits until all of its accepted jobs have arrived.
func (i *installation) drain(accepted []string) {
	i.t.Helper()
	if status, _, text := i.ask("POST", "/v1/release/full", ""); status != http.StatusOK {
		i.t.Fatalf("take the policy from the file: %d %s", status, text)
	}
	document := fmt.Sprintf(
		`{"algorithm":"leaking_bucket","outflow":"1000/s","capacity":100000,"partitions":2,`+
			`"target":{"http":{"url":%q}}}`, i.target)
	if status, _, text := i.ask("PUT", "/v1/policies/full", document); status != http.StatusOK {
		i.t.Fatalf("give the policy a target: %d %s", status, text)
	}
	i.until("everything that was accepted ran", func() bool { return i.arrived(accepted) })
	i.until("the queue is empty", func() bool {
		var bucket struct{ Depth *int }
		_, _, text := i.ask("GET", "/v1/buckets/full/a", "")
		return json.Unmarshal([]byte(text), &bucket) == nil && bucket.Depth != nil &&
			*bucket.Depth == 0
	})
}

// A policy without workers that has filled its part of a small disk is refused more, with a
// warning, while others continue and leases are renewed. Once it has workers it drains, without
// loss.
func TestAFullPolicyDelaysNoOther(t *testing.T) {
	onSmallDisk(t, func(t *testing.T, disk string) {
		i := newInstallation(t, disk, time.Second)
		admitter := i.start()
		var accepted []string
		for {
			name := fmt.Sprintf("full-%d", len(accepted))
			status, header, text := i.submit("full", name)
			if status == http.StatusAccepted {
				accepted = append(accepted, name)
				continue
			}
			if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" ||
				!strings.Contains(text, "full/max_bytes") {
				t.Fatalf("after %d jobs: %d %s %s", len(accepted), status, header, text)
			}
			break
		}
		if len(accepted) < 50 {
			t.Errorf("took %d jobs of 64 KiB only", len(accepted))
		}
		i.others("before")
		i.until("it is said", func() bool {
			_, _, metrics := i.ask("GET", "/metrics", "")
			ready, _, text := i.ask("GET", "/readyz", "")
			return ready == http.StatusOK && strings.Contains(text, "nearly full: policy full") &&
				strings.Contains(metrics, `penstock_queue_bytes{kind="max",policy="full"}`) &&
				strings.Contains(metrics, "penstock_lease_held 1") &&
				strings.Contains(i.log.String(), `level=WARN msg="80 %`)
		})
		after(6 * time.Second)
		i.others("later")
		if log := i.log.String(); strings.Contains(log, "lease cannot be renewed") ||
			strings.Contains(log, "declared dead") {
			t.Error("a lease was not renewed")
		}
		i.drain(accepted)
		if status, _, text := i.submit("full", "again"); status != http.StatusAccepted {
			t.Errorf("a job after all: %d %s", status, text)
		}
		admitter.stop(t)
	})
}

func fill(t *testing.T, disk string) (makeRoom func()) {
	t.Helper()
	name := filepath.Join(disk, "ballast")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = file.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := errors.Join(os.Remove(name), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Its share of the disk would stay zero, even after space becomes free. The process reports it and
// ends, to be restarted.
func TestNoProcessStartsOnAFullDisk(t *testing.T) {
	onSmallDisk(t, func(t *testing.T, disk string) {
		i := newInstallation(t, disk, time.Second)
		makeRoom := fill(t, disk)
		cmd := exec.Command(proctest.Program("admitter"), "--drain", "--config",
			filepath.Join(disk, "config.yaml"))
		p := proctest.Start(t, cmd)
		if err := p.End(); err == nil || p.Cmd.ProcessState.ExitCode() != 1 ||
			!strings.Contains(p.Log.String(), syscall.ENOSPC.Error()) {
			t.Errorf("ended with %v\n%s", err, p.Log)
		}
		makeRoom()
		admitter := i.start()
		i.others("later")
		admitter.stop(t)
	})
}

// When others fill the disk, jobs are refused with a warning. The server's files stay broken
// afterwards, so the process ends, to be restarted, and then continues.
func TestADiskThatWasFullEndsTheProcess(t *testing.T) {
	onSmallDisk(t, func(t *testing.T, disk string) {
		i := newInstallation(t, disk, patientGrace)
		admitter := i.start()
		var accepted []string
		submit := func() int {
			name := fmt.Sprintf("job-%d", len(accepted))
			status, _, _ := i.submit("full", name)
			if status == http.StatusAccepted {
				accepted = append(accepted, name)
			}
			return status
		}
		for range 20 {
			if status := submit(); status != http.StatusAccepted {
				t.Fatalf("a job: %d", status)
			}
		}
		i.others("before")
		makeRoom := fill(t, disk)
		i.until("jobs are refused for want of room", func() bool {
			return submit() == http.StatusInsufficientStorage
		})
		if status, _, text := i.ask("GET", "/readyz", ""); status !=
			http.StatusServiceUnavailable || !strings.Contains(text, `"storage"`) {
			t.Errorf("/readyz: %d %s", status, text)
		}
		if _, _, metrics := i.ask("GET", "/metrics", ""); !strings.Contains(metrics,
			"penstock_storage_writable 0") {
			t.Error("the metric does not say it")
		}
		makeRoom()
		select {
		case <-admitter.Exited:
		case <-time.After(patientGrace):
			t.Fatal("the process goes on with broken files, or waits for a handover")
		}
		if status := admitter.Cmd.ProcessState.ExitCode(); status != 1 {
			t.Errorf("ended with status %d, want 1", status)
		}
		for _, line := range []string{"cannot be written: jobs are refused",
			"could not write and must restart"} {
			if !strings.Contains(i.log.String(), line) {
				t.Errorf("no line says %q", line)
			}
		}
		again := i.start()
		i.others("after")
		i.drain(accepted)
		again.stop(t)
	})
}

// The end of a job that starts on a full disk cannot be stored, and the job would run again after a
// restart. Nothing starts then, and the process does not wait for a handover that it could not
// write.
func TestNothingStartsOnAFullDisk(t *testing.T) {
	onSmallDisk(t, func(t *testing.T, disk string) {
		i := newInstallation(t, disk, patientGrace)
		admitter := i.start()
		var names []string
		for n := range 400 {
			name := fmt.Sprintf("slow-%d", n)
			if status, _, text := i.ask("POST", "/v1/jobs/slow/a", name+" "); status !=
				http.StatusAccepted {
				t.Fatalf("a job: %d %s", status, text)
			}
			names = append(names, name)
		}
		i.until("jobs run", func() bool { return i.arrived(names[:10]) })
		filled := i.runs()
		makeRoom := fill(t, disk)
		i.until("it is said that nothing starts", func() bool {
			return strings.Contains(i.log.String(), "and none start here")
		})
		i.until("it is said why", func() bool {
			var bucket struct {
				By string `json:"blocked_by"`
			}
			_, _, text := i.ask("GET", "/v1/buckets/slow/a", "")
			return json.Unmarshal([]byte(text), &bucket) == nil && bucket.By == "storage"
		})
		before := i.runs()
		after(3 * time.Second)
		if now := i.runs(); now != before {
			t.Errorf("%d jobs started on a full disk", now-before)
		}
		began := time.Now()
		admitter.Signal(syscall.SIGTERM)
		select {
		case <-admitter.Exited:
		case <-time.After(patientGrace):
			t.Fatal("the process waits for a handover that cannot be stored")
		}
		t.Logf("it ended after %v", time.Since(began).Round(time.Millisecond))
		if status := admitter.Cmd.ProcessState.ExitCode(); status != 1 {
			t.Errorf("ended with status %d, want 1", status)
		}
		makeRoom()
		again := i.start()
		i.until("all jobs ran", func() bool { return i.arrived(names) })
		again.stop(t)
		repeats := i.runs() - len(names)
		t.Logf("%d jobs, %d started until the disk was known to be full, %d ran twice", len(names),
			before-filled, repeats)
		if repeats > before-filled {
			t.Errorf("%d jobs ran twice", repeats)
		}
	})
}

func (i *installation) runs() (n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, times := range i.came {
		n += times
	}
	return n
}
