// Package grpc has gRPC calls begin at the pace of a policy.
//
//	conn, err := grpc.NewClient(target, grpc.WithUnaryInterceptor(Throttled(p, "api")))
package grpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-mq/penstock"
)

// Throttled returns an interceptor of unary calls. The key is the connection's target; a
// ResourceExhausted answer pauses it for all callers, several Unavailable ones open its breaker.
func Throttled(p penstock.Acquirer, policy string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		permit, err := p.Acquire(ctx, penstock.Call{Policy: policy, Key: cc.Target()})
		if err != nil {
			return status.Error(codes.ResourceExhausted, err.Error())
		}
		err = invoke(ctx, method, request, reply, cc, options...)
		result := penstock.CallResult{Status: penstock.CallDone}
		switch status.Code(err) {
		case codes.ResourceExhausted:
			result.Status = penstock.CallThrottled
		case codes.Unavailable:
			result.Status = penstock.CallUnavailable
		}
		permit.Settle(result)
		return err
	}
}
