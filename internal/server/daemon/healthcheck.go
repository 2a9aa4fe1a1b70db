package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/penstock-mq/penstock/config"
)

const healthTimeout = 5 * time.Second

// healthcheck is for containers without a shell. A status other than 200 is an error.
func healthcheck(ctx context.Context, h config.HTTP, otherwise string, out io.Writer) error {
	host, port, err := net.SplitHostPort(cmp.Or(h.Listen, otherwise))
	if err != nil || port == "0" {
		return errors.New("http.listen: want the port of the process to check (--http-listen)")
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if h.TLS.Cert != "" {
		scheme = "https"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		scheme+"://"+net.JoinHostPort(host, port)+"/readyz?verbose", nil)
	if err != nil {
		return err
	}
	// The certificate is for other names, and the request contains no secret.
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(out, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", response.Status)
	}
	return nil
}
