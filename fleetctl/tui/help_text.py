"""What `?` shows: every key and every sign; must not do anything."""

# Lines of at most 78 columns, so that the smallest usual terminal breaks none.
HELP = """\
Panes
  Tab, Shift+Tab, ← →  the next pane, the one before
  1 … 7                missions, sorties, agents, locks, mail, checkpoints,
                       events
  ↑ ↓, j k             the next row, the one before
  PgUp PgDn, Home End  further
  Enter                all that is known of the row
  z                    one pane on the whole screen; z or Esc again: all
  f                    only what belongs to the chosen mission

The chosen mission
  c                    its checkpoints: Enter shows one, m marks one
  p                    the prompt its agent would get in a recovery;
                       on an agent its own, on a checkpoint from there
  d                    what changed since its newest checkpoint; on a
                       checkpoint since the marked one, or the one before

The whole
  r                    what waits for recovery, and how to go on
  Space                hold the picture still, or go on
  q, Ctrl+C            leave; q or Esc leaves a page
  The mouse is your terminal's: select and copy as ever.

Signs
  ● at work   ○ to do, or idle   ◐ waits for its user   ■ blocked
  ✓ done   ✗ failed, or lost   ▲ waits for recovery
  letters: ◌ queued   ◑ delivered, not dealt with   ✓ dealt with

Looking on changes nothing: no letter counts as read, no silence ends, nobody
is briefed. The picture is driven by fleetd's events. When fleetd goes away it
stays as it was, and is right again as soon as fleetd is back."""
