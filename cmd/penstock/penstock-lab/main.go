// Command penstock-lab works without a server: it plays recorded traffic through policies, searches
// for policies, and judges recorded answers.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
)

func main() {
	a := lab{&cli.Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}}
	cli.Main(a.Terminal, a.root())
}

type lab struct{ *cli.Terminal }

func (a lab) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "penstock-lab",
		Short: "Play recorded traffic through policies, and find some that meet goals",
		Long: `penstock-lab plays recorded traffic through policies in virtual time, searches for
policies that meet goals, and says what a target's answers mean. It asks no server.`,
	}
	root.AddCommand(a.simulate(), a.advise(), a.checkAnswer())
	cli.Complete(root, a.Terminal)
	root.PersistentFlags().Lookup("json").Usage = "print JSON"
	return root
}
