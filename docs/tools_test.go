package docs

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

func arguments(args []string, withValue string) (options map[string][]string, rest []string) {
	options = map[string][]string{}
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		switch {
		case !strings.HasPrefix(name, "-"):
			rest = append(rest, args[i])
		case given:
			options[name] = append(options[name], value)
		case slices.Contains(strings.Fields(withValue), name) && i+1 < len(args):
			i++
			options[name] = append(options[name], args[i])
		default:
			options[name] = append(options[name], "")
		}
	}
	return options, rest
}

func last(values []string, or string) string {
	if len(values) == 0 {
		return or
	}
	return values[len(values)-1]
}

func curl(args []string) error {
	options, urls := arguments(args, "-X -d -H -o --data-binary")
	if len(urls) != 1 {
		return fmt.Errorf("want one URL, not %q", urls)
	}
	data := slices.Concat(options["-d"], options["--data-binary"])
	method := http.MethodGet
	if len(data) > 0 {
		method = http.MethodPost
	}
	to := urls[0]
	if !strings.Contains(to, "://") {
		to = "http://" + to
	}
	request, err := http.NewRequest(last(options["-X"], method), to,
		strings.NewReader(strings.Join(data, "&")))
	if err != nil {
		return err
	}
	if len(data) > 0 {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, line := range options["-H"] {
		name, value, _ := strings.Cut(line, ":")
		request.Header.Set(name, strings.TrimSpace(value))
	}
	response, err := (&http.Client{Timeout: waittest.Patience()}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	fmt.Println(response.StatusCode)
	show(response.Header)
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	fmt.Println(strings.TrimSpace(string(body)))
	return nil
}

func show(header map[string][]string) {
	for name, values := range header {
		for _, value := range values {
			fmt.Printf("%s: %s\n", name, value)
		}
	}
}

// natsCLI implements the commands of https://github.com/nats-io/natscli that the pages use:
// request, pub and sub, without their progress lines.
func natsCLI(args []string) error {
	options, rest := arguments(args, "-s -H --header --count")
	if len(rest) < 2 {
		return fmt.Errorf("want a command and a subject, not %q", rest)
	}
	nc, err := nats.Connect(last(options["-s"], os.Getenv("NATS_URL")))
	if err != nil {
		return err
	}
	defer nc.Close()
	m := nats.NewMsg(rest[1])
	if len(rest) > 2 {
		m.Data = []byte(rest[2])
	}
	for _, line := range slices.Concat(options["-H"], options["--header"]) {
		name, value, _ := strings.Cut(line, ":")
		m.Header.Add(name, strings.TrimSpace(value))
	}
	switch rest[0] {
	case "req", "request":
		answer, err := nc.RequestMsg(m, waittest.Patience())
		if errors.Is(err, nats.ErrNoResponders) {
			fmt.Println("No responders are available")
			return nil
		}
		if err != nil {
			return err
		}
		show(answer.Header)
		fmt.Println(string(answer.Data))
		return nil
	case "pub", "publish":
		if err := nc.PublishMsg(m); err != nil {
			return err
		}
		return nc.Flush()
	case "sub", "subscribe":
		return listen(nc, rest[1], last(options["--count"], "1"))
	}
	return fmt.Errorf("%s: the stand-in does not know that", rest[0])
}

func listen(nc *nats.Conn, subject, count string) error {
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	if err := os.WriteFile(os.Getenv("READY"), nil, 0o600); err != nil {
		return err
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	for range n {
		m, err := sub.NextMsg(waittest.Patience())
		if err != nil {
			return err
		}
		fmt.Println(m.Subject)
		show(m.Header)
		fmt.Println(string(m.Data))
	}
	return nil
}
