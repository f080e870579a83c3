"""Thin helpers around Streamlit: filters, links, charts, empty states, style."""
