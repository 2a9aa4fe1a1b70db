// Package kubernetes is a stub, because Helm imports it. The real client-go has 20 MB of sources
// for Helm's function lookup, which needs a cluster.
package kubernetes
