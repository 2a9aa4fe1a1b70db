// Package consoletest tests the console in Chromium against a real installation. It is a separate
// module to keep the browser driver out of Penstock's dependencies.
package consoletest
