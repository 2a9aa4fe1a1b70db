// Package consoletest holds the tests of the console in a real browser, Chromium, against a real
// installation. It is a module of its own, so that what drives the browser weighs on nobody who
// imports a package of Penstock's.
package consoletest
