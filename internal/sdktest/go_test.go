package sdktest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/anthropics/anthropic-sdk-go"
	claude "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-github/v84/github"
	"github.com/openai/openai-go/v3"
	gpt "github.com/openai/openai-go/v3/option"
	"github.com/stripe/stripe-go/v83"

	"github.com/penstock-mq/penstock/internal/sdktest/recipes"
)

type inGo struct{ *world }

func (g inGo) gpt() openai.Client {
	return openai.NewClient(gpt.WithAPIKey("sk-openai"),
		gpt.WithBaseURL("http://"+g.proxy+"/openai/v1"))
}

func (g inGo) claude() anthropic.Client {
	return anthropic.NewClient(claude.WithAPIKey("sk-anthropic"),
		claude.WithBaseURL("http://"+g.proxy+"/anthropic"))
}

func (g inGo) stripes() *stripe.Client {
	_, port, _ := strings.Cut(g.proxy, ":")
	to := "http://localhost:" + port
	return stripe.NewClient("sk_test_stripe", stripe.WithBackends(&stripe.Backends{
		API: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{URL: &to,
			LeveledLogger: &stripe.LeveledLogger{}}),
		Uploads: stripe.GetBackendWithConfig(stripe.UploadsBackend,
			&stripe.BackendConfig{URL: &to}),
	}))
}

func (g inGo) hub() *github.Client {
	client := github.NewClient(nil).WithAuthToken("ghp_x")
	base, err := url.Parse("http://" + g.proxy + "/github/")
	if err != nil {
		g.t.Error(err)
	}
	client.BaseURL = base
	return client
}

var chat = openai.ChatCompletionNewParams{Model: "gpt-x", MaxTokens: openai.Int(100),
	Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}}

var talk = anthropic.MessageNewParams{Model: "claude-x", MaxTokens: 100, Messages: []anthropic.
	MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))}}

func says(text string, err error) string {
	if err != nil {
		return err.Error()
	}
	return text
}

func (g inGo) chat() string {
	client := g.gpt()
	c, err := client.Chat.Completions.New(g.t.Context(), chat)
	if err != nil {
		return err.Error()
	}
	return c.Choices[0].Message.Content
}

func (g inGo) customer(client *stripe.Client, i int) string {
	c, err := client.V1Customers.Create(g.t.Context(),
		&stripe.CustomerCreateParams{Name: stripe.String(fmt.Sprintf("customer %d", i))})
	if err != nil {
		return err.Error()
	}
	return c.Name
}

func (g inGo) message() string {
	client := g.claude()
	m, err := client.Messages.New(g.t.Context(), talk)
	if err != nil {
		return err.Error()
	}
	return m.Content[0].Text
}

func encoded(v map[string]any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func (g inGo) work() string {
	chats, customers := make([]string, 15), make([]string, 8)
	var issues []int
	var message string
	client := g.stripes()
	var all sync.WaitGroup
	for i := range chats {
		all.Go(func() { chats[i] = g.chat() })
	}
	for i := range customers {
		all.Go(func() { customers[i] = g.customer(client, i) })
	}
	all.Go(func() { message = g.message() })
	all.Go(func() {
		o := &github.IssueListByRepoOptions{}
		for {
			page, response, err := g.hub().Issues.ListByRepo(g.t.Context(), "o", "r", o)
			if err != nil {
				g.t.Error(err)
				return
			}
			for _, issue := range page {
				issues = append(issues, issue.GetNumber())
			}
			if response.NextPage == 0 {
				return
			}
			o.ListOptions.Page = response.NextPage
		}
	})
	all.Wait()
	file, err := client.V1Files.Create(g.t.Context(), &stripe.FileCreateParams{
		Purpose:    stripe.String("dispute_evidence"),
		FileReader: bytes.NewReader([]byte("\x00binary\xff")), Filename: stripe.String("a.bin")})
	if err != nil {
		g.t.Error(err)
		return ""
	}
	return encoded(map[string]any{"chats": chats, "customers": customers, "issues": issues,
		"message": message, "file": file.ID})
}

func (g inGo) arrived(api string) {
	response, err := http.Get("http://" + g.told + "/arrived/" + api)
	if err != nil {
		g.t.Error(err)
		return
	}
	response.Body.Close()
}

func (g inGo) streams() string {
	one, other := "", ""
	client, second := g.gpt(), g.claude()
	stream := client.Chat.Completions.NewStreaming(g.t.Context(), chat)
	for stream.Next() {
		if one == "" {
			g.arrived("openai")
		}
		if c := stream.Current(); len(c.Choices) > 0 {
			one += c.Choices[0].Delta.Content
		}
	}
	events := second.Messages.NewStreaming(g.t.Context(), talk)
	for events.Next() {
		if delta, ok := events.Current().AsAny().(anthropic.ContentBlockDeltaEvent); ok {
			if other == "" {
				g.arrived("anthropic")
			}
			other += delta.Delta.Text
		}
	}
	return encoded(map[string]any{"openai": says(one, stream.Err()),
		"anthropic": says(other, events.Err())})
}

func (g inGo) pages() string {
	client, second := g.gpt(), g.claude()
	var one, other, third []string
	files := client.Files.ListAutoPaging(g.t.Context(), openai.FileListParams{})
	for files.Next() {
		one = append(one, files.Current().ID)
	}
	models := second.Models.ListAutoPaging(g.t.Context(), anthropic.ModelListParams{})
	for models.Next() {
		other = append(other, models.Current().ID)
	}
	if err := errors.Join(files.Err(), models.Err()); err != nil {
		g.t.Error(err)
	}
	for customer, err := range g.stripes().V1Customers.List(g.t.Context(), nil) {
		if err != nil {
			g.t.Error(err)
			break
		}
		third = append(third, customer.ID)
	}
	return encoded(map[string]any{"openai": one, "anthropic": other, "stripe": third})
}

func (g inGo) cancel() {
	client, second := g.gpt(), g.claude()
	stream := client.Chat.Completions.NewStreaming(g.t.Context(), chat)
	events := second.Messages.NewStreaming(g.t.Context(), talk)
	if !stream.Next() || !events.Next() {
		g.t.Error(stream.Err(), events.Err())
	}
	stream.Close()
	events.Close()
	ctx, cancel := context.WithCancel(g.t.Context())
	var all sync.WaitGroup
	all.Go(func() { _, _ = g.stripes().V1Customers.Retrieve(ctx, "hold", nil) })
	all.Go(func() { _, _, _ = g.hub().Issues.ListByRepo(ctx, "o", "hold", nil) })
	<-g.stripe.held
	<-g.github.held
	cancel()
	all.Wait()
}

func (g inGo) refused() string {
	var chat, customer, message string
	got := &http.Response{}
	var all sync.WaitGroup
	all.Go(func() { chat = g.chat() })
	all.Go(func() { customer = g.customer(g.stripes(), 1) })
	all.Go(func() { message = g.message() })
	all.Go(func() {
		_, response, err := g.hub().Issues.ListByRepo(g.t.Context(), "o", "r", nil)
		if err == nil || response == nil {
			g.t.Error("GitHub's SDK was not refused", err)
			return
		}
		got = response.Response
	})
	all.Wait()
	return encoded(map[string]any{"chat": chat, "customer": customer, "message": message,
		"status": got.StatusCode, "retryAfter": got.Header.Get("Retry-After"),
		"by": got.Header.Get("Penstock-Error")})
}

func (g inGo) recipes() string {
	g.t.Setenv("OPENAI_API_KEY", "sk-openai")
	g.t.Setenv("ANTHROPIC_API_KEY", "sk-anthropic")
	got := map[string]any{}
	for name, recipe := range map[string]func() (string, error){
		"openai":    func() (string, error) { return recipes.OpenAI(g.t.Context(), g.proxy) },
		"anthropic": func() (string, error) { return recipes.Anthropic(g.t.Context(), g.proxy) },
		"stripe": func() (string, error) {
			return recipes.Stripe(g.t.Context(), g.proxy, "sk_test_stripe")
		},
		"github": func() (string, error) { return recipes.GitHub(g.t.Context(), g.proxy, "ghp_x") },
	} {
		got[name] = says(recipe())
	}
	return encoded(got)
}
