"""The package's logger, which escapes control characters and line breaks in its records."""

from __future__ import annotations

import logging
import traceback

from dask_efficiency.show.figures import harmless


def _made_harmless(record: logging.LogRecord) -> bool:
    record.msg, record.args = harmless(record.getMessage()), None
    if isinstance(record.exc_info, tuple) and record.exc_info[0] is not None:
        # Formatters take the text that is there.
        lines = "".join(traceback.format_exception(*record.exc_info)).splitlines()
        record.exc_text = "\n".join(map(harmless, lines))
    return True


#: Logger of all modules.
logger = logging.getLogger("dask_efficiency")
logger.addFilter(_made_harmless)
