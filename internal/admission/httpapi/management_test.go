package httpapi

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/admission/manage"
)

func TestManageWithoutNATS(t *testing.T) {
	i := install(t, manage.Options{Timeout: 200 * time.Millisecond})
	i.broker.Conn().Close()
	for _, path := range []string{"/v1/policies", "/v1/drainers", "/v1/policies/stripe",
		"/v1/buckets/stripe", "/v1/dead/stripe",
		"/v1/policies/stripe/keys", "/v1/jobs/stripe:1"} {
		i.expect("GET", path, "", 503, `temporary-reduced-capacity`)
	}
	i.expect("PUT", "/v1/policies/stripe", stripe, 503)
	i.expect("POST", "/v1/dead/stripe/replay", "", 503)
}

func TestManagePaths(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/v1/policies/", 404},
		{"GET", "/v1/policies/stripe/", 404},
		{"GET", "/v1/policies/stripe/key/a", 404},
		{"POST", "/v1/policies", 405},
		{"POST", "/v1/policies/stripe", 405},
		{"POST", "/v1/policies/stripe/keys", 405},
		{"GET", "/v1/pause/stripe", 405},
		{"POST", "/v1/pause", 404},
		{"POST", "/v1/pause/", 404},
		{"GET", "/v1/buckets/", 404},
		{"POST", "/v1/buckets", 405},
		{"GET", "/v1/dead/", 404},
		{"GET", "/v1/drainers", 200},
		{"POST", "/v1/drainers", 405},
		{"GET", "/v1/drainers/", 404},
		{"GET", "/v1/drainers?x=1", 400},
		{"GET", "/v1/policy/stripe", 404},
		{"GET", "/policies", 404},
		{"GET", "/v1/policies?x=1", 400},
		{"GET", "/v1/policies/UPPER%20", 404},
		{"GET", "/v1/policies/a.b", 404},
		{"GET", "/v1/policies/%2A", 404},
		{"GET", "/v1/policies/stripe/keys/%ff", 400},
	} {
		i.expect(c.method, c.path, "", c.status)
	}
	if response, _ := i.do("HEAD", "/v1/policies/stripe", ""); response.StatusCode != 200 {
		t.Errorf("HEAD: %s", response.Status)
	}
	// Requests of another site's page.
	for site, want := range map[string]int{"cross-site": 403, "same-origin": 200, "none": 200} {
		response, _ := i.do("POST", "/v1/pause/stripe", "", "Sec-Fetch-Site", site)
		if response.StatusCode != want {
			t.Errorf("%s: %s", site, response.Status)
		}
	}
	w := httptest.NewRecorder()
	New(&fakeService{}, Options{Hosts: testHosts}).ServeHTTP(w,
		httptest.NewRequest("GET", "/v1/policies", nil))
	if w.Code != 404 {
		t.Errorf("without management: %d", w.Code)
	}
}

// An unexpected body is probably a mistake.
func TestUnexpectedBodiesAreRefused(t *testing.T) {
	i := install(t, manage.Options{})
	i.expect("PUT", "/v1/policies/stripe", stripe, 201)
	i.expect("POST", "/v1/pause/stripe", `{"for":"1h"}`, 400, `"field":"body"`)
	i.expect("GET", "/v1/policies/stripe", "", 200, `"paused":false`)
	i.expect("POST", "/v1/pause/stripe", "", 200)
}
