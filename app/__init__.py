"""What people touch: Streamlit pages, REST API, command line."""
