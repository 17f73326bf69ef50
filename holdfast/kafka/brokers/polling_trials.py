"""Whether to poll for answers or to sleep, as trials of the other way tell."""

from typing import Final, final

#: After so many answers in the way in use comes a trial of the other one.
_USUAL_ANSWERS: Final = 8_000
#: A trial to sleep makes answers later where polling is good; one to poll has to be long enough for what comes rarely.
_TRIED_SLEEPING: Final = 64
_TRIED_POLLING: Final = 200
#: A trial is compared with about so many answers that came just before it, for what answers take changes with the load.
_RECENT_ANSWERS: Final = 200
#: The weight of each trial in the ratio: the time of answers with polling to their time without.
_TRIAL_WEIGHT: Final = 1 / 3
#: The ratio before the first trial.
_RATIO_ASSUMED: Final = 0.75
#: The least and the greatest ratio of a single trial, whatever came late in it.
_TRIAL_RATIO_MIN: Final = 0.6
_TRIAL_RATIO_MAX: Final = 1.4
#: A single answer counts for so much at most: one that a broker gives late now and then says nothing of polling.
_LATEST_S: Final = 0.01
#: Polling is left off from the first on and taken up again below the second; between them nothing changes.
_RATIO_MAX: Final = 1.0
_RATIO_MIN: Final = 0.9


@final
class PollingTrials:
    """Whether answers come later to a loop that polls than to one that sleeps, as it is found out by trials.

    They do beside processes that compute without a pause: the kernel preempts such a process for a thread that slept, but not for one that
    polls, which then waits for its turn for milliseconds.
    """

    __slots__ = ("_answers", "_before_s", "_is_trial", "_mean_s", "_ratio", "is_polled")

    def __init__(self) -> None:
        """Begin to poll, before the first answer."""
        #: Whether the loop is to poll now.
        self.is_polled = True
        #: Whether that is a trial.
        self._is_trial = False
        #: Answers since that was decided.
        self._answers = 0
        #: What the last of them took on average.
        self._mean_s = 0.0
        #: What the last answers before the trial took on average.
        self._before_s = 0.0
        self._ratio = _RATIO_ASSUMED

    def record(self, took_s: float) -> None:
        """Take what an answer took, in seconds, and perhaps go over to the other way."""
        self._answers += 1
        self._mean_s += (min(took_s, _LATEST_S) - self._mean_s) / min(self._answers, _RECENT_ANSWERS)
        if not self._is_trial:
            if self._answers >= _USUAL_ANSWERS:
                self._before_s, self._is_trial = self._mean_s, True
                self.is_polled, self._answers = not self.is_polled, 0
        elif self._answers >= (_TRIED_POLLING if self.is_polled else _TRIED_SLEEPING):
            self._decide()

    def _decide(self) -> None:
        """Choose what is in use from now on, behind a trial."""
        polled_s, slept_s = (self._mean_s, self._before_s) if self.is_polled else (self._before_s, self._mean_s)
        if slept_s > 0:
            ratio = max(_TRIAL_RATIO_MIN, min(polled_s / slept_s, _TRIAL_RATIO_MAX))
            self._ratio += (ratio - self._ratio) * _TRIAL_WEIGHT
        self.is_polled = self._ratio < (_RATIO_MIN if self.is_polled else _RATIO_MAX)
        self._is_trial, self._answers = False, 0
