package queue

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock-mq/penstock/internal/installation"
	"github.com/penstock-mq/penstock/queue/job"
)

const DefaultPrefix = installation.DefaultPrefix

// Names builds the names of an installation's subjects, streams, consumers and KV buckets.
type Names struct {
	lower, upper string
}

// NewNames takes a prefix of 1 to 32 lower-case letters, digits, "-" and "_" that begins with a
// letter or digit; the empty one means [DefaultPrefix].
func NewNames(prefix string) (Names, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if err := installation.CheckPrefix(prefix); err != nil {
		return Names{}, fmt.Errorf("prefix %w", err)
	}
	return Names{lower: prefix, upper: strings.ToUpper(prefix)}, nil
}

// Prefix returns the lower-case prefix of all subjects.
func (n Names) Prefix() string { return n.lower }

// Jobs is the subject to which any client publishes a job of a queue policy.
func (n Names) Jobs(policy string, k job.Key) string {
	return n.lower + ".jobs." + policy + "." + string(k)
}

// Admitted is the subject of the admitted jobs of a door policy with a queue.
func (n Names) Admitted(policy string, k job.Key) string {
	return n.lower + ".admitted." + policy + "." + string(k)
}

// Queue is the subject under which a policy's stream stores a job.
func (n Names) Queue(policy string, partition int, k job.Key) string {
	return n.lower + ".queue." + policy + "." + strconv.Itoa(partition) + "." + string(k)
}

// ParseQueue parses the partition and the key from a stored job's subject. If the tail is not a
// key's subject form, it returns [job.ErrInvalidKey] and a substitute key that is unique and safe
// in subjects. Jobs whose subject the server left as it was, because of a literal "*" or ">", count
// as partition 0's.
func (n Names) ParseQueue(subject string) (partition int, k job.Key, err error) {
	rest, ours := strings.CutPrefix(subject, n.lower+".")
	kind, rest, _ := strings.Cut(rest, ".")
	_, tail, cut := strings.Cut(rest, ".") // after the policy
	switch {
	case ours && cut && (kind == "jobs" || kind == "admitted"):
		return 0, job.StrangeKey(tail), fmt.Errorf("%w: %q has wildcards for tokens",
			job.ErrInvalidKey, tail)
	case ours && cut && kind == "queue":
		var number string
		number, tail, cut = strings.Cut(tail, ".")
		partition, err = strconv.Atoi(number)
		if !cut || err != nil {
			return 0, job.StrangeKey(subject), fmt.Errorf("%w: %q names no partition",
				job.ErrInvalidKey, subject)
		}
	default:
		return 0, job.StrangeKey(subject), fmt.Errorf("%w: %q is not the subject of a stored job",
			job.ErrInvalidKey, subject)
	}
	if k, err = job.ParseKey(tail); err != nil {
		return partition, job.StrangeKey(tail), err
	}
	return partition, k, nil
}

// Stream is the name of a policy's stream.
func (n Names) Stream(policy string) string { return n.upper + "_" + policy }

// Consumer is the name of the consumer with which the owner of a partition pulls in one epoch.
func (n Names) Consumer(partition int, epoch uint64) string {
	return "valve-" + strconv.Itoa(partition) + "-" + strconv.FormatUint(epoch, 10)
}

func (n Names) parseConsumer(name string) (partition int, epoch uint64, ok bool) {
	rest, ours := strings.CutPrefix(name, "valve-")
	first, second, _ := strings.Cut(rest, "-")
	partition, err := strconv.Atoi(first)
	epoch, noEpoch := strconv.ParseUint(second, 10, 64)
	return partition, epoch, ours && err == nil && noEpoch == nil
}

// Dead is the subject of the dead letters of a policy's bucket.
func (n Names) Dead(policy string, k job.Key) string {
	return n.lower + ".dead." + policy + "." + string(k)
}

// DeadStream is the stream of a policy's dead letters.
func (n Names) DeadStream(policy string) string { return n.upper + "_" + deadInfix + policy }

// history joins the subject of a policy's ended jobs: policy, sequence, key.
func (n Names) history(tokens ...string) string {
	return strings.Join(append([]string{n.lower, "history"}, tokens...), ".")
}

func (n Names) historyStream(policy string) string { return n.upper + "_" + historyInfix + policy }

func (n Names) minute(policy string) string { return n.lower + ".minute." + policy }
func (n Names) minutesStream() string       { return n.upper + "_MINUTES_OF_DAY" }

func (n Names) audit(policy, kind string) string {
	return n.lower + ".audit." + policy + "." + kind
}

func (n Names) auditStream() string { return n.upper + "_AUDIT" }

// historyInfix marks the streams of histories, like deadInfix for dead letters.
const historyInfix = "HISTORY_"

// deadInfix marks the streams of dead letters: policy names contain no capital letters.
const deadInfix = "DEAD_"

// Valve is the subject where the owner of a partition answers questions.
func (n Names) Valve(policy string, partition int) string {
	return n.lower + ".valve." + policy + "." + strconv.Itoa(partition)
}

// Calls is the subject where the owner of a partition hears callers only: see [job.Call].
func (n Names) Calls(policy string, partition int) string {
	return n.lower + ".call." + policy + "." + strconv.Itoa(partition)
}

// Work is the subject where the valves of a policy offer jobs to remote workers, which subscribe in
// the queue group [WorkGroup].
func (n Names) Work(policy string) string { return n.lower + ".work." + policy }

// WorkOfTarget is the subject where drainers offer each other the jobs of a policy with a target.
func (n Names) WorkOfTarget(policy string) string { return n.Work(policy) + ".target" }

// Answers is the subject where remote workers answer the valves of a policy in the process id; "*"
// as the token matches all. It is not an inbox, so that workers can be permitted to publish there
// only.
func (n Names) Answers(policy, id, token string) string {
	return n.lower + ".answer." + policy + "." + id + "." + token
}

// IsReply reports whether an answer may be sent to a subject named by a client, which may name one
// of the server or of Penstock.
func (n Names) IsReply(subject string) bool {
	return subject != "" && subject[0] != '$' && subject != n.lower &&
		!strings.HasPrefix(subject, n.lower+".")
}

// WorkGroup is the queue group of the workers subscribed to [Names.Work].
const WorkGroup = "workers"

// Requests is the wildcard subject of an admitter's endpoint: submit, check, job, bucket or cancel.
func (n Names) Requests(endpoint string) string { return n.lower + "." + endpoint + ".>" }

// Request is the subject of a request to an endpoint about a policy's key or, for job and cancel,
// the sequence of a job's ID.
func (n Names) Request(endpoint, policy, token string) string {
	return n.lower + "." + endpoint + "." + policy + "." + token
}

// ParseRequest undoes Request. A missing token is "_".
func (n Names) ParseRequest(endpoint, subject string) (policy, token string, ok bool) {
	rest, ok := strings.CutPrefix(subject, n.lower+"."+endpoint+".")
	if !ok || rest == "" {
		return "", "", false
	}
	policy, token, found := strings.Cut(rest, ".")
	if !found {
		token = string(job.NoKey)
	}
	return policy, token, true
}

func (n Names) bucket(table string) string { return n.upper + "_" + table }

// doorJobs and doorAdmitted are the subjects that a policy's open stream captures.
func (n Names) doorJobs(policy string) string     { return n.lower + ".jobs." + policy + ".>" }
func (n Names) doorAdmitted(policy string) string { return n.lower + ".admitted." + policy + ".>" }

// doorClosed is the subject that a closed stream captures. It is no key's subject and lies in
// partition 0, so that a message sent there becomes a dead letter.
func (n Names) doorClosed(policy string) string {
	return n.lower + ".queue." + policy + ".0.%closed"
}

// storedIn matches the stored jobs of one partition.
func (n Names) storedIn(policy string, partition int) string {
	return n.lower + ".queue." + policy + "." + strconv.Itoa(partition) + ".>"
}
