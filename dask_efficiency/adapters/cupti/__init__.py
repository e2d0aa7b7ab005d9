"""CuptiMeter: kernels of this process, exact, from CUPTI's activity records."""
