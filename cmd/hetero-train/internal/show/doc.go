// Package show formats values as text and as JSON: durations, sizes, rates, and names that come from files.
//
// Names from files may contain escape sequences and line ends. [Foreign], [Visible] and [Indented] escape or indent
// such names, so the names cannot control the terminal.
package show
