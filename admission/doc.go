// Package admission decides on incoming work: [Service.Submit] and [Service.Check]. A refusal is an
// outcome; an error means that the request was wrong or could not be answered.
//
// Protocols are admission/httpapi and admission/natsapi, with the tables of admission/answer.
package admission
