// Command client calls a server through the generated client.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/penstock-mq/penstock/internal/apitest/generated/api"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, token string) error {
	bearer := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
	c, err := api.NewClientWithResponses(url, api.WithRequestEditorFn(bearer))
	if err != nil {
		return err
	}
	outflow, capacity := "1/s", 100
	put, err := c.PutPolicyWithResponse(ctx, "mail", nil, api.PolicySettings{
		Algorithm: new(api.PolicySettingsAlgorithmLeakingBucket), Outflow: &outflow,
		Capacity: &capacity})
	if err != nil {
		return err
	}
	if put.JSON201 == nil {
		return fmt.Errorf("put: %s: %s", put.Status(), put.Body)
	}
	fmt.Println("put", put.StatusCode(), *put.JSON201.Policy.Algorithm)

	later := "1h"
	submitted, err := c.SubmitJobWithBodyWithResponse(ctx, "mail", "a/b c",
		&api.SubmitJobParams{PenstockNotBefore: &later}, "text/plain", strings.NewReader("hello"))
	if err != nil {
		return err
	}
	if submitted.JSON202 == nil {
		return fmt.Errorf("submit: %s: %s", submitted.Status(), submitted.Body)
	}
	fmt.Println("submit", submitted.StatusCode(), submitted.JSON202.Verdict)

	whole := api.GetJobParamsBody(1)
	found, err := c.GetJobWithResponse(ctx, submitted.JSON202.Job, &api.GetJobParams{Body: &whole})
	if err != nil {
		return err
	}
	if found.JSON200 == nil {
		return fmt.Errorf("job: %s: %s", found.Status(), found.Body)
	}
	job, err := found.JSON200.AsJob()
	if err != nil {
		return err
	}
	fmt.Println("job", job.Key, *job.Body)

	text := "x"
	batch, err := c.SubmitBatchWithResponse(ctx, nil,
		[]api.BatchJob{{Policy: "mail", Key: "k", Text: &text}, {Policy: "none", Key: "k"}})
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(batch.Body)), "\n")
	fmt.Println("batch", batch.StatusCode(), len(lines))

	missing, err := c.GetPolicyWithResponse(ctx, "none", nil)
	if err != nil {
		return err
	}
	if missing.ApplicationproblemJSON404 == nil {
		return errors.New("what is missing is no problem")
	}
	fmt.Println("missing", missing.StatusCode(), missing.ApplicationproblemJSON404.Title)
	return nil
}
