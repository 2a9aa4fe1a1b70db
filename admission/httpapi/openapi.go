package httpapi

import (
	_ "embed"
	"net/http"

	"github.com/penstock-mq/penstock/admission/answer"
)

// description is the API as OpenAPI 3.1.
//
//go:embed openapi.yaml
var description []byte

func describe(*http.Request, place) (answer.Answer, error) {
	return answer.Answer{Status: http.StatusOK, Body: description,
		Header: []answer.Field{{Name: "Content-Type", Value: "application/yaml"}}}, nil
}
