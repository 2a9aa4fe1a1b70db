// Package recipes has the shortest way from each vendor's SDK through the outbound proxy, which is
// a host and a port. In Node: *.mjs.
package recipes

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	claude "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-github/v84/github"
	"github.com/openai/openai-go/v3"
	gpt "github.com/openai/openai-go/v3/option"
	"github.com/stripe/stripe-go/v83"
)

// OpenAI gets an answer. Its key is OPENAI_API_KEY.
func OpenAI(ctx context.Context, proxy string) (string, error) {
	client := openai.NewClient(gpt.WithBaseURL("http://" + proxy + "/openai/v1"))
	answer, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "gpt-5",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")}})
	if err != nil {
		return "", err
	}
	return answer.Choices[0].Message.Content, nil
}

// Anthropic gets an answer. Its key is ANTHROPIC_API_KEY.
func Anthropic(ctx context.Context, proxy string) (string, error) {
	client := anthropic.NewClient(claude.WithBaseURL("http://" + proxy + "/anthropic"))
	answer, err := client.Messages.New(ctx, anthropic.MessageNewParams{
		Model: anthropic.ModelClaudeHaiku5_5, MaxTokens: 100, Messages: []anthropic.MessageParam{
			anthropic.NewUserMessage(anthropic.NewTextBlock("Hello"))}})
	if err != nil {
		return "", err
	}
	return answer.Content[0].Text, nil
}

// Stripe makes a customer. The proxy's route is by Host, because this SDK takes no path.
func Stripe(ctx context.Context, proxy, key string) (string, error) {
	to := "http://" + strings.Replace(proxy, "127.0.0.1", "localhost", 1)
	client := stripe.NewClient(key, stripe.WithBackends(&stripe.Backends{
		API: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{URL: &to})}))
	customer, err := client.V1Customers.Create(ctx,
		&stripe.CustomerCreateParams{Name: stripe.String("Ada")})
	if err != nil {
		return "", err
	}
	return customer.Name, nil
}

// GitHub lists a repository's issues, page by page.
func GitHub(ctx context.Context, proxy, token string) (numbers string, err error) {
	client := github.NewClient(nil).WithAuthToken(token)
	client.BaseURL = &url.URL{Scheme: "http", Host: proxy, Path: "/github/"}
	for issue, err := range client.Issues.ListByRepoIter(ctx, "o", "r", nil) {
		if err != nil {
			return "", err
		}
		numbers += fmt.Sprintln(issue.GetNumber())
	}
	return strings.Join(strings.Fields(numbers), " "), nil
}
