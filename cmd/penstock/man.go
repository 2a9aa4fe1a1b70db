package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/penstock-mq/penstock/internal/buildinfo"
)

func (a *app) man() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages of all commands",
		Args:   exactly(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Manual: "Penstock",
				Source: "penstock " + buildinfo.Version()}, args[0])
		},
	}
}
