package docs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

// places are directories of services, which are below a temporary one in a test.
var places = []string{"/etc/", "/opt/", "/usr/local/", "/var/"}

var place = regexp.MustCompile(`(^|[\s:=-])(` + strings.Join(places, "|") + `)`)

// systemctl is a stand-in that leaves the work to the test.
func systemctl(args []string) error {
	answer, err := http.Post(os.Getenv("SYSTEMD"), "text/plain",
		strings.NewReader(strings.Join(args, " ")))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s", text)
	}
	return err
}

// systemd runs the services of units below root: their drop-ins, environment, credentials, working
// directory and command. It does not isolate them or start them again, and its timers do not fire.
type systemd struct {
	t       *testing.T
	root    string
	running map[string]*proctest.Process
}

func (s *systemd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	command, err := io.ReadAll(r.Body)
	if err == nil {
		err = s.do(strings.Fields(string(command)))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (s *systemd) do(args []string) error {
	verbs := map[string]func(unit string) error{"start": s.start, "enable": s.start, "stop": s.stop,
		"daemon-reload": nil}
	do, known := verbs[args[0]]
	if !known {
		return fmt.Errorf("%s is not a command of the stand-in", args[0])
	}
	for _, unit := range slices.DeleteFunc(args[1:], func(a string) bool { return a == "--now" }) {
		if err := do(unit); err != nil {
			return fmt.Errorf("%s %s: %w", args[0], unit, err)
		}
	}
	return nil
}

func (s *systemd) stop(unit string) error {
	p := s.running[unit]
	if p == nil {
		return fmt.Errorf("%s does not run", unit)
	}
	delete(s.running, unit)
	return p.Stop()
}

func (s *systemd) start(unit string) error {
	name, instance, _ := strings.Cut(unit, "@")
	if instance != "" {
		name += "@"
	}
	if timed, timer := strings.CutSuffix(unit, ".timer"); timer {
		of, err := s.read(unit, "")
		if err == nil && len(of["OnCalendar"]) == 0 {
			err = errors.New("no OnCalendar")
		}
		if err == nil {
			_, err = s.read(timed+".service", "")
		}
		return err
	}
	of, err := s.read(name+".service", instance)
	if err != nil {
		return err
	}
	cmd, err := s.command(unit, of)
	if err != nil {
		return err
	}
	if slices.Contains(of["Type"], "oneshot") {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	p, err := proctest.Open(cmd)
	if err != nil {
		return err
	}
	s.t.Cleanup(p.Kill)
	if s.running == nil {
		s.running = map[string]*proctest.Process{}
	}
	s.running[unit] = p
	_, err = p.Ready(s.t.Context())
	return err
}

// read returns the values of a unit and its drop-ins by name.
func (s *systemd) read(file, instance string) (map[string][]string, error) {
	of := map[string][]string{}
	path := filepath.Join(s.root, "etc/systemd/system", file)
	dropins, err := filepath.Glob(path + ".d/*.conf")
	if err != nil {
		return nil, err
	}
	for _, name := range append([]string{path}, dropins...) {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		whole := strings.NewReplacer("\\\n", " ", "%i", instance, "%%", "%",
			"$$", "$").Replace(string(text))
		for line := range strings.Lines(whole) {
			key, value, assigned := strings.Cut(strings.TrimSpace(line), "=")
			switch {
			case !assigned || strings.HasPrefix(key, "#"):
			case value == "":
				delete(of, key)
			default:
				of[key] = append(of[key], place.ReplaceAllString(value, "${1}"+s.root+"$2"))
			}
		}
	}
	return of, nil
}

// command makes a service's command, which sees its own environment only.
func (s *systemd) command(unit string, of map[string][]string) (*exec.Cmd, error) {
	credentials := filepath.Join(s.root, "run/credentials", unit)
	if err := os.MkdirAll(credentials, 0o700); err != nil {
		return nil, err
	}
	for _, load := range of["LoadCredential"] {
		name, from, _ := strings.Cut(load, ":")
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(credentials, name), text, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	env := []string{"CREDENTIALS_DIRECTORY=" + credentials}
	for _, name := range []string{"PATH", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"} {
		env = append(env, name+"="+os.Getenv(name))
	}
	for _, name := range of["EnvironmentFile"] {
		file, err := os.Open(strings.TrimPrefix(name, "-"))
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(name, "-") {
			continue
		}
		if err != nil {
			return nil, err
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if !strings.HasPrefix(lines.Text(), "#") {
				env = append(env, lines.Text())
			}
		}
	}
	if len(of["ExecStart"]) != 1 {
		return nil, fmt.Errorf("ExecStart is %q", of["ExecStart"])
	}
	// The shell splits words as systemd does.
	cmd := exec.Command("/bin/sh", "-c", "exec "+of["ExecStart"][0])
	cmd.Env, cmd.Dir = env, s.root
	for _, name := range of["StateDirectory"] {
		cmd.Dir = filepath.Join(s.root, "var/lib", name)
		if err := os.MkdirAll(cmd.Dir, 0o700); err != nil {
			return nil, err
		}
	}
	for _, dir := range of["WorkingDirectory"] {
		cmd.Dir = dir
	}
	return cmd, nil
}
