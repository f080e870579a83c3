"""View models of the pages: pure functions from a read-only store to frozen objects. Nothing here knows Streamlit."""
