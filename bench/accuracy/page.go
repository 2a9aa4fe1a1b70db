package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"text/template"

	"github.com/penstock-mq/penstock/bench/paper"
)

//go:embed page.md
var pageText string

const shownLimit = 100

func (r *report) page() ([]byte, error) {
	t, err := template.New("page").Funcs(r.words()).Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, nil); err != nil {
		return nil, fmt.Errorf("fill the page in: %w", err)
	}
	return b.Bytes(), nil
}

func (r *report) words() template.FuncMap {
	return template.FuncMap{
		"requests": func() string { return paper.Grouped(r.stream.requests) },
		"keys":     func() string { return paper.Grouped(int64(r.stream.keys)) },
		"windows":  func() int64 { return r.stream.windows },
		"seed":     func() uint64 { return r.stream.seed },
		"busiest":  func() string { return paper.Grouped(r.stream.shares()[0] / r.stream.windows) },
		"shown":    func() int { return shownLimit },

		"wrong": func(traffic string, limit int64, view string) (string, error) {
			t, err := r.tally(traffic, limit)
			v, viewErr := viewNamed(view)
			return percent(t.wrong[v].sum(), t.requests), errors.Join(err, viewErr)
		},
		"wrongAtLoad": func(traffic string, limit, from int64, view string) (string, error) {
			t, err := r.tallyAtLoad(traffic, limit, from)
			v, viewErr := viewNamed(view)
			return percent(t.wrong[v].sum(), t.requests), errors.Join(err, viewErr)
		},
		// the share of such keys that gives 0.003 % wrong overall
		"oneIn": func(traffic string, limit, from int64, view string) (string, error) {
			t, err := r.tallyAtLoad(traffic, limit, from)
			v, viewErr := viewNamed(view)
			return paper.Grouped((t.wrong[v].sum()*100_000/3 + t.requests/2) / max(t.requests, 1)),
				errors.Join(err, viewErr)
		},
		"near": func(traffic string, limit int64) (string, error) {
			t, err := r.tally(traffic, limit)
			return percent(t.ofNearKeys, t.requests), err
		},
		"farKeys": func(traffic string, limit int64) (string, error) {
			t, err := r.tally(traffic, limit)
			return percent(t.keys-t.nearKeys, t.keys), err
		},
		"passing": func(traffic string, limit int64) (string, error) {
			t, err := r.tally(traffic, limit)
			return ratio(t.accepted, t.logAccepted, 3), err
		},
		"difference": func(traffic string) (string, error) {
			i, err := trafficNamed(traffic)
			o := r.outcomes[max(i, 0)]
			return percent(o.difference, 1e6*o.requests), err
		},
		"ratioInWindow": func(name string, limit int64) (string, error) {
			return r.worstRatio(name, limit, windowMicros)
		},
		"ratioInHundredth": func(name string, limit int64) (string, error) {
			return r.worstRatio(name, limit, windowMicros/100)
		},

		"byLimit":        func() string { return r.byLimitTable().Markdown() },
		"views":          func() string { return r.viewTable().Markdown() },
		"sources":        func() string { return r.sourceTable().Markdown() },
		"byLoad":         func() string { return r.byLoadTable().Markdown() },
		"worst":          func() string { return r.worstTable().Markdown() },
		"worstIntervals": func() string { return r.worstIntervals().Markdown() },
	}
}

func trafficNamed(name string) (int, error) {
	i := slices.IndexFunc(allTraffic, func(t traffic) bool { return t.name == name })
	if i < 0 {
		return 0, fmt.Errorf("no traffic %q", name)
	}
	return i, nil
}

func viewNamed(name string) (view, error) {
	for v := range views {
		if v.String() == name {
			return v, nil
		}
	}
	return 0, fmt.Errorf("no view %q", name)
}

func (r *report) tally(name string, limit int64) (tally, error) {
	i, err := trafficNamed(name)
	k := slices.Index(limits, limit)
	if err != nil || k < 0 {
		return tally{}, errors.Join(err, fmt.Errorf("no tally of %q under %d", name, limit))
	}
	return r.outcomes[i].byLimit[k], nil
}

func (r *report) tallyAtLoad(name string, limit, from int64) (tally, error) {
	i, err := trafficNamed(name)
	k, part := slices.Index(limits, limit), slices.Index(loadEdges, from)
	if err != nil || k < 0 || part < 0 {
		return tally{}, errors.Join(err,
			fmt.Errorf("no tally of %q under %d from load %d on", name, limit, from))
	}
	return r.outcomes[i].byLoad[k][part], nil
}

func (r *report) worstRatio(name string, limit, length int64) (string, error) {
	for _, w := range r.worst {
		if w.subject.name == name && w.limit == limit && w.length == length {
			return ratio(w.most(), limit, 2), nil
		}
	}
	return "", fmt.Errorf("no worst case of %q under %d in %d µs", name, limit, length)
}
