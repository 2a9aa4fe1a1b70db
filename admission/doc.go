// Package admission decides on incoming work: [Service.Submit] (the job starts now, waits, or its
// queue is full) and [Service.Check] (may this request proceed?). It contains no protocol:
// admission/httpapi and admission/natsapi do, with the tables of admission/answer.
//
// A refusal is an outcome, not an error. An error means that the request was wrong or could not be
// answered; errors.go lists the kinds.
package admission
