package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/httpapi"
)

type lenient struct{ httpapi.Service }

func (lenient) Check(_ context.Context, r admit.CheckRequest) (admission.Checked, error) {
	return admission.Checked{
		Decision: algorithms.Decision{Allowed: true, Granted: r.Cost, Limit: 10,
			Remaining: 10 - r.Cost},
		Quota: admission.Quota{Policy: r.Policy, Units: 10},
	}, nil
}

func ExampleNew() {
	server := httptest.NewServer(httpapi.New(lenient{}, httpapi.Options{}))
	defer server.Close()
	response, err := http.Post(server.URL+"/v1/check/signup/10.0.0.1?cost=3", "", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(response.StatusCode, response.Header.Get("RateLimit"))
	fmt.Println(string(body))
	// Output:
	// 200 "signup";r=7;t=0
	// {"allowed":true,"limit":10,"remaining":7,"delay_ms":0,"retry_after_ms":0,"reset_after_ms":0}
}
