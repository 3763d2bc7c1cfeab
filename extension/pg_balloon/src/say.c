/*
 * say.c
 *		The log lines of decisions that matter: one at once, and one a second, with the sum, while the same one goes on.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "say.h"
#include "settings.h"
#include "state.h"

#define LOG_EVERY 1000			/* milliseconds between two log lines of the same decision */

/* Decisions of one kind that have not been logged yet, and when the last line was. */
static BalloonVerdict pending;
static int64 pending_buffers = 0;
static TimestampTz logged_at = 0;

/* Log the decisions that wait for it. */
static void
flush_log(const BalloonView *view)
{
	if (pending_buffers == 0)
		return;
	ereport(balloon_log_level,
			(errmsg("pg_balloon %s %lld kB: %s", pending.act == BALLOON_GIVE ? "inflated by" : "deflated by",
					(long long) (pending_buffers * (BLCKSZ / 1024)), balloon_why_text(pending.why)),
			 view == NULL ? 0 :
			 errdetail("Balloon now %lld kB, available %lld kB of %lld kB, working set %.0f %%, misses %.0f/s, waiting %.0f, refaults %.0f/s.",
					   (long long) balloon->nballooned * (BLCKSZ / 1024), (long long) view->available / 1024,
					   (long long) view->limit / 1024, view->hot * 100, view->misses, view->waiting, view->refaults)));
	pending_buffers = 0;
	logged_at = GetCurrentTimestamp();
}

/* So many buffers have moved by a decision; view: what it was made on, NULL where nothing was seen. */
void
balloon_say(const BalloonVerdict *verdict, int64 done, const BalloonView *view)
{
	bool		matters = done > 0 && (verdict->act == BALLOON_GIVE || verdict->act == BALLOON_TAKE);
	bool		other = matters && (verdict->act != pending.act || verdict->why != pending.why);

	if (other)
	{
		flush_log(view);
		pending = *verdict;
	}
	if (matters)
		pending_buffers += done;
	if (other || TimestampDifferenceExceeds(logged_at, GetCurrentTimestamp(), LOG_EVERY))
		flush_log(view);
}
