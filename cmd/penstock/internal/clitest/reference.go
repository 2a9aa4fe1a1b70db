package clitest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/penstock-mq/penstock/internal/kit/referencetest"
)

// Reference compares a page with the commands of a program, whose verbatim text is a block.
func Reference(t *testing.T, root *cobra.Command, file, head, verbatim string) {
	t.Helper()
	root.DisableAutoGenTag = true
	page := head
	var describe func(*cobra.Command)
	describe = func(c *cobra.Command) {
		var text bytes.Buffer
		if err := doc.GenMarkdown(c, &text); err != nil {
			t.Fatal(err)
		}
		own, _, _ := strings.Cut(text.String(), "### SEE ALSO")
		own, _, _ = strings.Cut(own, "### Options inherited from parent commands")
		if verbatim != "" {
			own = strings.Replace(own, verbatim, "```\n"+verbatim+"\n```", 1)
		}
		page += strings.NewReplacer("### Synopsis\n\n", "", "### Options\n\n", "",
			"### Examples\n\n", "").Replace(own)
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				describe(sub)
			}
		}
	}
	describe(root)
	referencetest.Check(t, file, strings.TrimSpace(page)+"\n")
}
