// Package show formats values as text and as JSON: durations, sizes, rates, and names that come from files.
//
// Names from files may contain escape sequences and line ends. [Foreign] and [Visible] escape them, and [Indented]
// indents lines, so that a name cannot control the terminal or forge a message.
package show
