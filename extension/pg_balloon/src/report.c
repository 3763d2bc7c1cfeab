/*
 * report.c
 *		What the worker saw and decided last.
 *
 * In shared memory, guarded by a lock of its own, which is taken alone: nobody
 * who holds it waits for anything.
 */
#include "postgres.h"

#include "storage/shmem.h"

#include "report.h"

#define SMOOTHING 0.2			/* weight of the newest reading in the cost of a miss */

typedef struct SharedReport
{
	LWLock	   *lock;			/* all of the report */
	BalloonReport report;
} SharedReport;

static SharedReport *shared = NULL;

Size
balloon_report_size(void)
{
	return sizeof(SharedReport);
}

/* Find it, or make it empty. The caller holds AddinShmemInitLock. */
void
balloon_report_attach(LWLock *lock)
{
	bool		found;

	shared = ShmemInitStruct("pg_balloon report", sizeof(SharedReport), &found);
	if (found)
		return;
	memset(shared, 0, sizeof(SharedReport));
	shared->lock = lock;
}

/* A copy of all of it. */
void
balloon_report_read(BalloonReport *report)
{
	LWLockAcquire(shared->lock, LW_SHARED);
	*report = shared->report;
	LWLockRelease(shared->lock);
}

/*
 * A tick: what was seen and where (NULL: nothing), what was decided, and how
 * many buffers that moved or wrote.
 */
void
balloon_report_tick(const BalloonView *view, int source, const char *place, const BalloonVerdict *verdict, int64 done)
{
	BalloonReport *report = &shared->report;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	report->seen = view != NULL;
	if (view != NULL)
	{
		report->view = *view;
		report->source = source;
		if (place != NULL)
			strlcpy(report->place, place, BALLOON_PLACE);
	}
	report->now = verdict->why;
	if (done > 0)
	{
		report->last = *verdict;
		report->done = done;
		report->when = GetCurrentTimestamp();
	}
	LWLockRelease(shared->lock);
}

/* The worker has come, or is leaving (0); what another one saw before is old. */
void
balloon_report_worker(pid_t worker)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->report.worker = worker;
	shared->report.seen = false;
	shared->report.now = BALLOON_WHY_CALM;
	LWLockRelease(shared->lock);
}

/* A page that was read by itself took so long. */
void
balloon_report_miss(double seconds)
{
	double	   *cost = &shared->report.miss_cost;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	*cost = *cost <= 0 ? seconds : *cost + SMOOTHING * (seconds - *cost);
	LWLockRelease(shared->lock);
}
