package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"log"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

// An API that allows 100 calls a second is called 96 times a second, at any rate of submissions.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	p, err := penstock.Open(ctx, penstock.Options{Policies: []policy.Policy{{Name: "api",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: penstock.MustRate("96/s"),
			Capacity: 5000}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	p.Handle("api", func(_ context.Context, job workers.Job) error {
		fmt.Printf("calling for %s: %s\n", job.Key.Raw(), job.Body)
		stop()
		return nil
	})
	ticket, err := p.Submit(ctx, penstock.Job{Policy: "api", Key: "customer 1",
		Body: []byte("a charge")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ticket.Verdict, ticket.Job)
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// queued api:1
	// calling for customer 1: a charge
}

func ExamplePenstock_Submit() {
	ctx := context.Background()
	p, err := penstock.Open(ctx, penstock.Options{Policies: []policy.Policy{{
		Name: "reports", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Outflow: penstock.MustRate("1/h"), Capacity: 2}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	for range 3 {
		ticket, err := p.Submit(ctx, penstock.Job{Policy: "reports", Key: "acme"})
		refused, no := errors.AsType[*penstock.RefusedError](err)
		switch {
		case no:
			fmt.Println(refused.Reason, "for", refused.RetryAfter.Round(time.Minute))
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println(ticket.Verdict, ticket.Job)
		}
	}
	// Output:
	// queued reports:1
	// queued reports:2
	// the queue is full for 1h0m0s
}

func ExamplePenstock_Check() {
	ctx := context.Background()
	p, err := penstock.Open(ctx, penstock.Options{Policies: []policy.Policy{{
		Name: "signup", Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 2,
			Window: policy.Duration(24 * time.Hour)}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	for range 3 {
		checked, err := p.Check(ctx, penstock.Request{Policy: "signup", Key: "203.0.113.7"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("allowed: %t, remaining: %d, come back in %s\n", checked.Allowed,
			checked.Remaining,
			checked.RetryAfter.Round(time.Hour))
	}
	// Output:
	// allowed: true, remaining: 1, come back in 0s
	// allowed: true, remaining: 0, come back in 0s
	// allowed: false, remaining: 0, come back in 24h0m0s
}

// Another process submits a job over HTTP, waits for its end, and cancels a job that has not
// started.
func ExampleClient() {
	ctx, stop := context.WithCancel(context.Background())
	p, err := penstock.Open(ctx, penstock.Options{
		HTTP: penstock.HTTP{Listen: "127.0.0.1:0"},
		Policies: []policy.Policy{{Name: "mail", Rule: policy.Rule{
			Algorithm: policy.LeakingBucket, Outflow: penstock.MustRate("1/m"), Capacity: 10}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	type letter struct{ To string }
	p.Handle("mail", workers.Handle(func(_ context.Context, _ workers.Job, l letter) error {
		fmt.Println("a letter to", l.To)
		return nil
	}))
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	<-p.Ready()

	client, err := penstock.NewHTTPClient("http://"+p.HTTPAddr().String(), "", nil)
	if err != nil {
		log.Fatal(err)
	}
	var ids []string
	for _, to := range []string{"ann", "ben"} {
		ticket, err := client.Submit(ctx, penstock.Job{Policy: "mail", IdempotencyKey: to,
			Body: fmt.Appendf(nil, `{"to":%q}`, to)})
		if err != nil {
			log.Fatal(err)
		}
		ids = append(ids, ticket.Job)
	}
	first, err := client.Wait(ctx, ids[0])
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Cancel(ctx, ids[1]); err != nil {
		log.Fatal(err)
	}
	second, err := client.Wait(ctx, ids[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.End, second.End)
	stop()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output:
	// a letter to ann
	// done cancelled
}

// "go doc penstock.Ticket" shows only the document of an alias, not the type in another package.
func TestDocumentsOfAliasesShowFieldsAndMethods(t *testing.T) {
	set, files := token.NewFileSet(), []*ast.File{}
	for _, name := range []string{"submit.go", "client.go", "options.go", "penstock.go", "run.go"} {
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	pages, err := doc.NewFromFiles(set, files, "github.com/penstock-mq/penstock")
	if err != nil {
		t.Fatal(err)
	}
	aliases := map[string]reflect.Type{
		"Acquirer": reflect.TypeFor[penstock.Acquirer](), "Call": reflect.TypeFor[penstock.Call](),
		"CallResult": reflect.TypeFor[penstock.CallResult](),
		"CallStatus": reflect.TypeFor[penstock.CallStatus](),
		"Codec":      reflect.TypeFor[penstock.Codec](), "Ended": reflect.TypeFor[penstock.Ended](),
		"Figure": reflect.TypeFor[penstock.Figure](), "Files": reflect.TypeFor[penstock.Files](),
		"Part": reflect.TypeFor[penstock.Part](), "Permit": reflect.TypeFor[penstock.Permit](),
		"RefusedError": reflect.TypeFor[penstock.RefusedError](),
		"Schedule":     reflect.TypeFor[penstock.Schedule](),
		"Ticket":       reflect.TypeFor[penstock.Ticket](),
		"Transport":    reflect.TypeFor[penstock.Transport](),
	}
	for _, page := range pages.Types {
		if !page.Decl.Specs[0].(*ast.TypeSpec).Assign.IsValid() {
			continue
		}
		of, known := aliases[page.Name]
		if !known {
			t.Errorf("this test does not know the alias %s", page.Name)
			continue
		}
		delete(aliases, page.Name)
		var members []string
		if of.Kind() == reflect.Struct {
			for _, field := range reflect.VisibleFields(of) {
				if field.IsExported() {
					members = append(members, field.Name)
				}
			}
		}
		if page.Name == "Permit" || page.Name == "Files" {
			of = reflect.PointerTo(of)
		}
		if of.Kind() != reflect.Struct {
			for method := range of.Methods() {
				members = append(members, method.Name)
			}
		}
		for _, member := range members {
			if !regexp.MustCompile(`(?m)^\t(\w+, )?` + member + `\b`).MatchString(page.Doc) {
				t.Errorf("the document of %s does not show %s", page.Name, member)
			}
		}
	}
	if len(aliases) > 0 {
		t.Errorf("these are no aliases: %v", aliases)
	}
}
