// Package admission decides what happens to incoming work. A [Service] knows the policies of the
// moment and answers two questions: [Service.Submit] (take this job: it starts now, it waits its
// turn, or its queue is full) and [Service.Check] (may this request go ahead?). It neither listens
// nor speaks a protocol: admission/httpapi and admission/natsapi translate requests, and
// admission/answer holds the tables by which both spell an answer.
//
// A refusal is an outcome and not an error. An error means that the question was wrong, or that it
// could not be answered: see errors.go for the kinds.
package admission
