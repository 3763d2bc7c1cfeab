"""Agents on many hosts over Dask distributed: started, called and watched from one driver."""
