package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// played is the environment variable with the number of the active mutant.
const played = "PENSTOCK_MUTANT"

type tests struct {
	dir     string
	overlay string
	// by directory of their package; "" if it cannot be built with all mutants
	binaries map[string]string
	numbers  map[mutant]int
}

// newTests builds the tests of each package once with all mutants that lie within a function: the
// function calls its mutated copy when that mutant is active. Building takes seconds, and most
// tests milliseconds.
func newTests(ctx context.Context, dir, scratch string, rows []mutant) (*tests, error) {
	numbers, files := map[mutant]int{}, map[string]*woven{}
	for i, m := range rows {
		text, err := m.mutated(dir)
		if m.equivalent != "" || err != nil {
			continue
		}
		if files[m.file] == nil {
			if files[m.file], err = readWoven(filepath.Join(dir, m.file)); err != nil {
				return nil, err
			}
		}
		if files[m.file].add(text, i+1) {
			numbers[m] = i + 1
		}
	}
	texts := map[string]string{}
	for name, w := range files {
		texts[name] = w.String()
		texts[filepath.Join(filepath.Dir(name), "mutantatwork.go")] = fmt.Sprintf(
			"package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar mutantAtWork, _ = "+
				"strconv.Atoi(os.Getenv(%q))\n", w.pkg, played)
	}
	overlay, err := overlayOf(dir, filepath.Join(scratch, "woven"), texts)
	if err != nil {
		return nil, err
	}
	binaries := map[string]string{}
	for m := range numbers {
		if _, known := binaries[m.pkg()]; known {
			continue
		}
		path := filepath.Join(scratch, fmt.Sprintf("%d.test", len(binaries)))
		cmd := exec.CommandContext(ctx, "go",
			slices.Concat([]string{"test", "-c", "-o", path, "-overlay", overlay}, cheaply,
				[]string{m.pkg()})...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: its mutants are built one by one: %v\n%s\n", m.pkg(), err,
				clip(string(out)))
			path = ""
		}
		binaries[m.pkg()] = path
	}
	return &tests{dir, overlay, binaries, numbers}, nil
}

type woven struct {
	text    string
	pkg     string
	funcs   []function
	choices map[int]string
	copies  strings.Builder
}

type function struct {
	*ast.FuncDecl
	from, name, body, to int
}

func readWoven(path string) (*woven, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	w := &woven{text: string(text), choices: map[int]string{}}
	w.pkg, w.funcs, err = functions(w.text)
	return w, err
}

func functions(text string) (pkg string, found []function, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, err
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			found = append(found,
				function{f, at(f.Pos()), at(f.Name.End()), at(f.Body.Lbrace) + 1, at(f.End())})
		}
	}
	return file.Name.Name, found, nil
}

// add weaves a mutant in, if its change lies within one function whose parameters have names, and
// reports success.
func (w *woven) add(mutated string, number int) bool {
	_, funcs, err := functions(mutated)
	if err != nil || len(funcs) != len(w.funcs) {
		return false
	}
	for i, f := range w.funcs {
		m := funcs[i]
		if w.text[f.from:f.to] == mutated[m.from:m.to] {
			continue
		}
		name := fmt.Sprintf("%sMutant%d", f.Name.Name, number)
		call, named := f.call(name)
		if !named || w.text[:f.body] != mutated[:m.body] || w.text[f.to:] != mutated[m.to:] {
			return false
		}
		if f.Type.Results != nil {
			call = "return " + call
		} else {
			call += "; return"
		}
		w.choices[f.body] += fmt.Sprintf(" if mutantAtWork == %d { %s };", number, call)
		fmt.Fprintf(&w.copies, "\n%s%s%s\n", mutated[m.from:m.name-len(m.Name.Name)], name,
			mutated[m.name:m.to])
		return true
	}
	return false
}

func (f function) call(name string) (text string, named bool) {
	names := func(fields *ast.FieldList, variadic string) (all []string) {
		if fields == nil {
			return nil
		}
		for _, field := range fields.List {
			if len(field.Names) == 0 {
				all = append(all, "_")
			}
			for _, n := range field.Names {
				if _, rest := field.Type.(*ast.Ellipsis); rest {
					all = append(all, n.Name+variadic)
				} else {
					all = append(all, n.Name)
				}
			}
		}
		return all
	}
	receiver, types, params := names(f.Recv, ""), names(f.Type.TypeParams, ""), names(f.Type.Params,
		"...")
	if slices.Contains(slices.Concat(receiver, params), "_") {
		return "", false
	}
	if len(types) > 0 {
		name += "[" + strings.Join(types, ", ") + "]"
	}
	return strings.Join(append(receiver, name), ".") + "(" + strings.Join(params, ", ") + ")", true
}

func (w *woven) String() string {
	var out strings.Builder
	from := 0
	for _, at := range slices.Sorted(maps.Keys(w.choices)) {
		out.WriteString(w.text[from:at] + w.choices[at])
		from = at
	}
	return out.String() + w.text[from:] + w.copies.String()
}

// overlayOf writes texts and an overlay file that substitutes them for files of the module.
func overlayOf(dir, scratch string, texts map[string]string) (path string, err error) {
	replace := map[string]string{}
	for name, text := range texts {
		real, absErr := filepath.Abs(filepath.Join(dir, name))
		replace[real] = fmt.Sprintf("%s-%d.go", scratch, len(replace))
		err = errors.Join(err, absErr, os.WriteFile(replace[real], []byte(text), 0o600))
	}
	text, jsonErr := json.Marshal(map[string]any{"Replace": replace})
	path = scratch + ".json"
	return path, errors.Join(err, jsonErr, os.WriteFile(path, text, 0o600))
}
