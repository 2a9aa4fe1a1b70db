// Package deploytest checks files of deploy/ with the programs that read them. It is a separate
// module, because users of the packages should not depend on Prometheus and Kubernetes. Tests in
// deploy/ compare the files with Penstock.
package deploytest

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

func parse(t *testing.T, where, expr string) {
	t.Helper()
	expr = regexp.MustCompile(`\$__rate_interval`).ReplaceAllString(expr, "1m")
	if _, err := parser.NewParser(parser.Options{}).ParseExpr(expr); err != nil {
		t.Errorf("%s: %s: %v", where, expr, err)
	}
}

func read(t *testing.T, name string, decode func([]byte, any) error, into any) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := decode(text, into); err != nil {
		t.Fatal(err)
	}
}

func TestEveryPanelsExpressionsAreOfPromQL(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	read(t, "grafana/penstock.json", json.Unmarshal, &dashboard)
	n := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			parse(t, panel.Title, target.Expr)
			n++
		}
	}
	if n < 20 {
		t.Errorf("only %d expressions", n)
	}
}

func TestEveryAlertsExpressionIsOfPromQL(t *testing.T) {
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	read(t, "penstock-alerts.yaml", yaml.Unmarshal, &alerts)
	n := 0
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			parse(t, rule.Alert, rule.Expr)
			n++
		}
	}
	if n < 10 {
		t.Errorf("only %d alerts", n)
	}
}
