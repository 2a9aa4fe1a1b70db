package discovery

import (
	"errors"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

type client interface {
	ServerResourcesForGroupVersion(group string) (*meta.APIResourceList, error)
}

func NewDiscoveryClientForConfig(*rest.Config) (client, error) {
	return nil, errors.New("there is no cluster")
}
