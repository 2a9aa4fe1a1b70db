// Package kubernetes is here because Helm imports it. It and the packages beside it stand for the
// real ones, 20 MB of sources by which Helm's function lookup asks a cluster: no test has one.
package kubernetes
