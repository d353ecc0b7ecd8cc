package config

// Notify contains the keys of table [notify].
type Notify struct {
	Command        []string // program and its arguments; empty = none
	Webhook        string   // "" = none
	WebhookFile    string   // "" = none
	Events         []string // of NotifyEvents
	StalledSeconds float64  // 0 = never
	TimeoutSeconds float64
}

// NotifyEvents are the values of notify.events.
var NotifyEvents = []string{"finished", "failed", "straggler", "diverged", "stalled"}

// Keys implements [Options].
func (n *Notify) Keys() []Key {
	return each(Key.Operational, []Key{
		Strings(&n.Command, "command").
			Doc("Program to start for each event, with its arguments. It gets the event as JSON on standard input. No shell interprets the command."),
		String(&n.Webhook, "webhook", "").
			Doc("Address that receives each event as JSON with POST. If the address contains a secret, use `webhook_file`, because logs and checkpoints contain the settings."),
		String(&n.WebhookFile, "webhook_file", "").Path().OverriddenBy("notify.webhook").
			Doc("File with the address of the webhook. Only the owner may have access to the file. If the owner is root, the group may read the file, too. Empty: the environment variable `HETERO_NOTIFY_WEBHOOK_SECRET`."),
		Strings(&n.Events, "events", NotifyEvents...).
			Doc("Events to report: `finished`; `failed`, an end with an error; `straggler`, a rank became slower than usual for its device; `diverged`, the loss is not finite (exit code 4); `stalled`, no progress for `stalled_seconds`."),
		Float(&n.StalledSeconds, "stalled_seconds", 600).Unit("s").SilentAtEnd("it never counts as stalled").
			Doc("Time without a step, an evaluation or a checkpoint after which the run counts as stalled. 0: never."),
		Float(&n.TimeoutSeconds, "timeout_seconds", 10).Unit("s").Above(0).AtMost(300).
			Doc("Time limit of one try. At its end, the run waits at most this long for the last report."),
	})
}
