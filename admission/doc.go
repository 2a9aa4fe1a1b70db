// Package admission decides on incoming work: [Service.Submit] and [Service.Check].
// admission/httpapi and admission/natsapi are its protocols, with the tables of admission/answer.
//
// A refusal is an outcome. An error means that the request was wrong or could not be answered.
package admission
