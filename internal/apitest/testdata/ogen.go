// Command ogen calls a server through a client that ogen generated.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/penstock-mq/penstock/internal/apitest/ogen/api"
)

type bearer string

func (b bearer) Token(context.Context, api.OperationName) (api.Token, error) {
	return api.Token{Token: string(b)}, nil
}

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, token string) error {
	c, err := api.NewClient(url, bearer(token))
	if err != nil {
		return err
	}
	put, err := c.PutPolicy(ctx, &api.PolicySettings{
		Algorithm: api.NewOptPolicySettingsAlgorithm(
			api.PolicySettingsAlgorithmLeakingBucket),
		Outflow: api.NewOptRate("1/s"), Capacity: api.NewOptInt(100)},
		api.PutPolicyParams{Policy: "mail"})
	created, ok := put.(*api.PutPolicyCreated)
	if err != nil || !ok {
		return fmt.Errorf("put: %T, %w", put, err)
	}
	fmt.Println("put 201", created.Response.Policy.Algorithm.Value)

	submitted, err := c.SubmitJob(ctx, &api.SubmitJobReqWithContentType{ContentType: "text/plain",
		Content: api.SubmitJobReq{Data: strings.NewReader("hello")}},
		api.SubmitJobParams{Policy: "mail", Key: "a/b c",
			PenstockNotBefore: api.NewOptString("1h")})
	accepted, ok := submitted.(*api.SubmitJobAcceptedHeaders)
	if err != nil || !ok {
		return fmt.Errorf("submit: %T, %w", submitted, err)
	}
	fmt.Println("submit 202", accepted.Response.Verdict)

	found, err := c.GetJob(ctx, api.GetJobParams{Job: accepted.Response.Job,
		Body: api.NewOptGetJobBody(1)})
	whole, ok := found.(*api.GetJobOK)
	if err != nil || !ok {
		return fmt.Errorf("job: %T, %w", found, err)
	}
	fmt.Println("job", whole.Job.Key, whole.Job.Body.Value)

	missing, err := c.GetPolicy(ctx, api.GetPolicyParams{Policy: "none"})
	problem, ok := missing.(*api.GetPolicyNotFound)
	if err != nil || !ok {
		return fmt.Errorf("missing: %T, %w", missing, err)
	}
	fmt.Println("missing 404", problem.Title)
	return nil
}
